"""A browser without a screen: keeps the cookie of its session and sends forms, over real sockets."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode

from support.mgmt.mgmt_process import Mgmt, Reply
from support.processes.commands import usher

HTML = "text/html,application/xhtml+xml"
FORM = "application/x-www-form-urlencoded"
CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@dataclass
class FormClient:
    """One browser."""

    server: Mgmt
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, body: bytes | None = None) -> Reply:
        headers = {"Accept": HTML, **self.headers}
        if self.cookie:
            headers["Cookie"] = self.cookie
        if body is not None:
            headers["Content-Type"] = FORM
        reply = self.server.ask_unproven(method, path, body, headers)
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def page(self, path: str) -> str:
        reply = self.get(path)
        assert reply.status == 200, (path, reply.status, reply.body[-1500:])
        return reply.body.decode()

    def post(self, path: str, **fields: str) -> Reply:
        return self.send("POST", path, urlencode(fields).encode())

    def csrf(self) -> str:
        token = CSRF.search(self.page("/"))
        assert token
        return token[1]

    def act(self, action: str, **fields: str) -> Reply:
        """Do an action with the CSRF token of the session."""
        return self.post(f"/actions/{action}", csrf=self.csrf(), **fields)


def make_token(database: str, name: str, scope: str) -> str:
    ran = usher("tokens", "add", name, "--scope", scope, environment={"DATABASE_URL": database})
    assert ran.code == 0, ran.err
    return ran.out.strip()


def signed_in(server: Mgmt, database: str, scope: str) -> FormClient:
    """A browser with a session of a new token."""
    client = FormClient(server)
    reply = client.post("/login", token=make_token(database, f"{scope}-person", scope))
    assert reply.status == 303, reply.body
    return client
