"""Components that know only MGMT's HTTP API, as in any other language."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from support.mgmt.mgmt_process import WAIT_SECONDS, Mgmt, Reply


@dataclass(frozen=True, slots=True)
class Component:
    """One that calls from an address of its own on loopback, or says at which host it is."""

    server: Mgmt
    address: str = "127.0.0.1"
    host: str = ""
    token: str = ""

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        said = dict(headers or {})
        if self.host:
            said["X-Usher-Host"] = self.host
        if self.token:
            said["Authorization"] = f"Bearer {self.token}"
        line = http.client.HTTPConnection(
            *self.server.place, timeout=WAIT_SECONDS, source_address=(self.address, 0)
        )
        try:
            line.request(method, path, None if body is None else json.dumps(body), said)
            got = line.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return Reply(got.status, found, got.read())
        finally:
            line.close()

    def get(self, path: str) -> Any:  # noqa: ANN401 - whatever is answered
        return done(self.ask("GET", path))

    def post(self, path: str, **body: object) -> Any:  # noqa: ANN401
        return done(self.ask("POST", path, body))

    def declined(self, path: str, **body: object) -> tuple[int, str]:
        """Status and code of a POST that is to be declined."""
        return self.ask("POST", path, body).problem


def done(reply: Reply) -> Any:  # noqa: ANN401
    assert reply.status == 200, reply.body
    return reply.json


def at_once(dsn: str, *, rows: int = 1) -> None:
    """A database without delays between pages, with so many rows, whose next chunk is 101."""
    with psycopg.connect(dsn) as conn:
        conn.execute("update work.settings set crawl_delay = '0', rows = %s", [rows])
        conn.execute("alter table work.chunk alter column id restart with 101")


def make_hosts_ready(dsn: str) -> None:
    """Let hosts be crawled now. MGMT estimates the time of the database, so `now()` may still be in its future."""
    with psycopg.connect(dsn) as conn:
        conn.execute("""
            update work.hosts set ready_at = past, claim_at = past
            from (select now() - interval '1 minute') as t (past)
        """)


def one(dsn: str, query: str, *given: object) -> Any:  # noqa: ANN401
    """The first value of the first row."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query.encode(), given).fetchone()
    return row[0] if row else None


def states(dsn: str) -> dict[str, int]:
    """How many links are in each state."""
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute("select state, count(*) from mgmt.link group by 1").fetchall())
