"""The console: no page without a session, no action without credential, scope and CSRF token, no secrets for `read`."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from support.console.signed_in import FormClient, make_token, signed_in
from support.mgmt.endpoints import CONSOLE
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import one
from support.processes.commands import usher
from usher import local_secret
from usher.console.actions.registry import ACTIONS
from usher.mgmt import console_sessions

OPEN_PATHS = {"/login", "/static/{name}"}
PAGES = sorted(
    endpoint.path
    for endpoint in CONSOLE
    if endpoint.method == "GET" and endpoint.path not in OPEN_PATHS
)
FORMS = sorted(endpoint.path for endpoint in CONSOLE if endpoint.method == "POST")


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    with mgmt(database, tmp_path / "log") as process:
        yield process


def concrete(path: str) -> str:
    return re.sub(r"{action}", "host-pause", re.sub(r"{(name|host|id)}", "7", path))


def link_of(server: Mgmt, database: str) -> str:
    """The path of a link of `usher console`."""
    ran = usher(
        "console", "--mgmt", server.address,
        environment={"DATABASE_URL": database, "USHER_DATA": str(server.data)},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{server.address}/login?key=")
    return ran.out.strip().removeprefix(server.address)


def test_the_table_of_endpoints_is_complete() -> None:
    """A new endpoint of the console is in these tests, because they use the table."""
    assert {"/", "/explain", "/pages", "/hosts/{name}", "/tokens", "/actions/{action}"} <= set(
        PAGES
    )
    assert FORMS == ["/actions/{action}", "/actions/{action}/preview", "/login", "/logout"]
    without_rule = [each.path for each in CONSOLE if each.access.scope == "open"]
    assert set(without_rule) == OPEN_PATHS


@pytest.mark.attack(1, "another local user opens a page of the console", "sent to the sign-in")
def test_every_page_needs_a_session(running: Mgmt) -> None:
    assert len(PAGES) > 30
    for path in map(concrete, PAGES):
        reply = FormClient(running).get(path)
        assert reply.status == 303, path
        assert reply.headers["location"].startswith("/login"), path
        wrong = FormClient(running, f"usher_session_{running.place[1]}=wrong")
        assert wrong.get(path).status == 303, path
        if path != "/":  # programs on this machine get links there
            assert running.ask_unproven("GET", path).problem == (401, "unproven"), path


@pytest.mark.attack(1, "a caller posts a form of the console without a session", "401")
def test_every_form_needs_a_session(running: Mgmt, database: str) -> None:
    for name in ACTIONS:
        for path in (f"/actions/{name}", f"/actions/{name}/preview"):
            reply = FormClient(running).post(path, host="a.example")
            assert reply.problem == (401, "unproven"), path
    assert FormClient(running).post("/logout").problem == (401, "unproven")
    assert one(database, "select count(*) from work.event where actor is not null") == 0


@pytest.mark.attack(2, "a session with the scope `read` acts", "403, nothing changes")
def test_read_cannot_act(running: Mgmt, database: str) -> None:
    reader = signed_in(running, database, "read")
    csrf = reader.csrf()
    for name in ACTIONS:
        for path in (f"/actions/{name}", f"/actions/{name}/preview"):
            assert reader.post(path, csrf=csrf, host="a.example").status == 403, path
        assert reader.get(f"/actions/{name}").status == 403, name
    assert one(database, "select count(*) from work.event where actor is not null") == 0
    assert 'class="action" href="/actions/' not in reader.page("/tokens")


@pytest.mark.attack(2, "another site posts a form of the console with the operator's cookie", "403")
def test_every_form_needs_the_csrf_token(running: Mgmt, database: str) -> None:
    admin, other = signed_in(running, database, "admin"), signed_in(running, database, "read")
    for name in ACTIONS:
        for fields in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": other.csrf()}):
            for path in (f"/actions/{name}", f"/actions/{name}/preview"):
                assert admin.post(path, **fields).status == 403, path
    assert admin.post("/logout").status == 403
    assert admin.send("POST", "/actions/host-pause", b"\xff").status == 403
    assert admin.page("/")
    good = admin.csrf()
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        admin.headers = headers
        reply = admin.post("/actions/host-pause", csrf=good, host="a.example")
        assert reply.problem == (403, "not_allowed")
    assert one(database, "select count(*) from work.event where actor is not null") == 0


@pytest.mark.attack(10, "a session is stolen from the database or by a script", "hashes; HttpOnly")
def test_sessions_are_hashed_and_cookies_are_closed(running: Mgmt, database: str) -> None:
    secret = make_token(database, "alice", "admin")
    browser = FormClient(running)
    reply = browser.post("/login", token=secret)
    attributes = {part.strip().lower() for part in reply.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= attributes
    session = browser.cookie.partition("=")[2]
    assert one(database, "select count(*) from work.console_session") == 1
    row = one(database, "select row_to_json(s)::text from work.console_session s")
    assert session not in row
    assert secret not in row
    # The API does not accept the session for anything that changes something.
    told = running.ask_unproven("POST", "/v1/knock", {"urls": []}, {"Cookie": browser.cookie})
    assert told.problem == (401, "unproven")


@pytest.mark.attack(
    10, "a session goes on after its end, its token's end or the sign-out", "sign-in"
)
def test_sessions_end(running: Mgmt, database: str) -> None:
    admin = signed_in(running, database, "admin")
    reader = signed_in(running, database, "read")
    old = FormClient(running, reader.cookie)
    assert reader.post("/logout", csrf=reader.csrf()).status == 303
    assert old.get("/pages").status == 303
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("update work.token set revoked_at = now() where name = 'admin-person'")
    assert eventually_signed_out(admin)
    again = FormClient(running)
    assert again.post("/login", token=make_token(database, "x", "admin")).status == 303
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "update work.console_session set created_at = created_at - interval '13 hours', "
            "expires_at = expires_at - interval '13 hours'"
        )
    assert eventually_signed_out(again)


def eventually_signed_out(browser: FormClient) -> bool:
    """Within the second for which MGMT remembers a session."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if browser.get("/pages").status == 303:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.attack(10, "sessions fill the database", "a bounded number is kept")
async def test_sessions_are_bounded(database: str) -> None:
    from usher.db.clock import server_time
    from usher.db.pool import connect
    from usher.mgmt.tokens import local_token

    async with await connect(database) as conn:
        now = await server_time(conn)
        token = local_token("x", "admin", now)
        await conn.execute(
            "insert into work.console_session (hash, kind, created_at, expires_at) "
            "select sha256(n::text::bytea), 'session', now(), now() + interval '1 hour' "
            "from generate_series(1, 1500) n"
        )
        secret = await console_sessions.add_session(conn, token, now=now)
        rows = await conn.execute("select count(*) from work.console_session")
        assert await rows.fetchone() == (console_sessions.MAX_SESSIONS,)
        assert await console_sessions.check_session(conn, secret, now=now)


def test_a_link_works_once_and_signs_in_the_operator(running: Mgmt, database: str) -> None:
    path = link_of(running, database)
    browser, key = FormClient(running), path.partition("=")[2]
    body = browser.page(path)  # a program that reads links in advance does not use it up
    assert f'name="key" value="{key}"' in body
    assert browser.post("/login", key=key, next="/pages?state=error").headers["location"] == (
        "/pages?state=error"
    )
    assert "operator of this machine, admin" in browser.page("/")
    assert FormClient(running).post("/login", key=key).status == 401
    assert FormClient(running).post("/login", key="wrong").status == 401


@pytest.mark.attack(1, "a link of `usher console` is opened through a proxy", "403")
def test_a_link_works_on_this_machine_only(running: Mgmt, database: str) -> None:
    key = link_of(running, database).partition("=")[2]
    far = FormClient(running, headers={"X-Forwarded-For": "203.0.113.9"})
    assert far.post("/login", key=key).status == 403
    assert FormClient(running).post("/login", key=key).status == 303


@pytest.mark.attack(2, "a component's token signs in to the console", "403")
def test_components_cannot_sign_in(running: Mgmt, database: str) -> None:
    ran = usher("tokens", "add", "--type", "crawler", environment={"DATABASE_URL": database})
    assert FormClient(running).post("/login", token=ran.out.strip()).status == 403
    component = local_secret.component_credential("", running.data, running.address)
    assert FormClient(running).post("/login", token=component).status == 403


@pytest.mark.attack(10, "a sign-in form leads to another site", "it stays on this server")
def test_the_sign_in_stays_here(running: Mgmt, database: str) -> None:
    token = make_token(database, "x", "read")
    for path in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "evil",
        "/a\r\nX: y",
        "",
    ):
        reply = FormClient(running).post("/login", token=token, next=path)
        assert (reply.status, reply.headers["location"]) == (303, "/"), path


@pytest.mark.attack(10, "a caller guesses tokens in the sign-in form", "429 after thirty a minute")
def test_guesses_at_the_sign_in_are_limited(running: Mgmt) -> None:
    browser = FormClient(running)
    statuses = [browser.post("/login", token=f"guess-{number}").status for number in range(32)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


@pytest.mark.attack(10, "the scope `read` looks for secrets in the console", "they are hidden")
def test_read_sees_no_secrets(database: str, tmp_path: Path) -> None:
    settings = {"USHER_TOKEN": "hunter2-token"}
    with mgmt(database, tmp_path / "log", settings=settings) as running:
        job = {"type": "t", "program": "p", "args": ["hunter2-arg"], "data": "hunter2-data"}
        id_ = running.ask("POST", "/v1/jobs", job).json["jobs"][0]["id"]
        task = {**job, "periodicity": "1h"}
        assert running.ask("POST", "/v1/tasks", task).status == 200
        secret = local_secret.read(running.data)
        reader, admin = (signed_in(running, database, scope) for scope in ("read", "admin"))
        leave_secrets(admin, database, id_)
        paths = [concrete(path).replace("/7", f"/{id_}") for path in PAGES if "actions" not in path]
        assert {"/", "/status.json", "/events", "/events.json", f"/jobs/{id_}.json"} <= set(paths)
        for path in [*paths, "/v1/events", "/jobs?show=log", "/jobs.json?show=log", "/types"]:
            for shown in (reader.get(path), reader.get(f"{path}?url=https://a.example/")):
                assert b"hunter2" not in shown.body, path
                assert secret.encode() not in shown.body, path
        assert reader.get("/events?kind=job").status == 200
        assert b"console_job_add" in reader.get("/events.json?kind=job").body
        assert reader.get("/events?contains=hunter2").status == 403
        assert b"hunter2-edited" in admin.get("/events").body
        assert b"hunter2-query" in admin.get("/searches").body
        assert reader.get("/searches").status == 403
        assert b"hunter2-out" in admin.get(f"/jobs/{id_}").body
        assert b"hunter2-arg" in admin.get("/jobs").body
        assert b"hunter2-token" not in admin.get("/settings").body
        assert reader.get("/jobs?contains=hunter").status == 403


def leave_secrets(admin: FormClient, database: str, job: int) -> None:
    """Texts that only admin may read: arguments in audit events, queries of users, output and messages of a job."""
    for action, fields in (
        ("job-add", {"type": "t", "command": "p hunter2-added"}),
        ("task-edit", {"task": "1", "command": "p hunter2-edited"}),
        ("task-add", {"name": "x", "every": "1h", "command": "p hunter2-task"}),
        (
            "jobs-cancel",
            {
                "state": "pending",
                "contains": "hunter2-added",
                "limit": "9",
                "because": "hunter2-why",
            },
        ),
    ):
        assert admin.act(action, **fields).status == 200, action
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "update control.job set output = 'hunter2-out', message = 'hunter2-message', unique_key = 'hunter2-key' "
            "where id = %s",
            (job,),
        )
        conn.execute(
            "insert into work.query_stat (at, term, seconds) values (now(), 'hunter2-query', 1)"
        )


def test_a_remote_browser_signs_in_with_a_token(database: str, tmp_path: Path) -> None:
    token = make_token(database, "alice", "read")
    with mgmt(database, tmp_path / "log", "--bind", "0.0.0.0:0") as process:
        running = replace(process, address=process.address.replace("0.0.0.0", "127.0.0.1"))
        browser = FormClient(running)
        assert browser.get("/feeds").status == 303
        assert browser.post("/login", token=token).status == 303
        assert "alice, read" in browser.page("/")
        assert browser.page("/feeds")


def test_a_form_with_a_field_twice_is_refused(running: Mgmt, database: str) -> None:
    admin = signed_in(running, database, "admin")
    body = b"host=a.example&host=b.example&csrf=" + admin.csrf().encode()
    assert admin.send("POST", "/actions/host-pause", body).status == 403
