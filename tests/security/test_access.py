"""Who may call MGMT: callers without proof, with the wrong token, or with a token they should not have."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from support.mgmt.endpoints import ENDPOINTS
from support.mgmt.mgmt_process import Mgmt, Reply, mgmt
from support.mgmt.plain_components import Component, one
from support.processes.commands import usher
from usher import local_secret
from usher.api import callers
from usher.mgmt.component_names import TYPES

DOCS = Path(__file__).parents[2] / "docs"
NOBODY_UID = 65534
SHELL_JOB = {"type": "attack", "program": "/bin/sh", "args": ["-c", "id > /tmp/owned"]}
# Sends one request as the operating system's user nobody and prints the status.
AS_NOBODY = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[2], method=sys.argv[1], data=sys.argv[3].encode() or None)
try:
    print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    with mgmt(database, tmp_path / "log") as process:
        yield process


@contextmanager
def reachable(database: str, log: Path, *words: str) -> Iterator[Mgmt]:
    """An MGMT that other machines can reach."""
    with mgmt(database, log, "--bind", "0.0.0.0:0", *words) as process:
        yield replace(process, address=process.address.replace("0.0.0.0", "127.0.0.1"))


def token(database: str, *words: str) -> str:
    ran = usher("tokens", "add", *words, environment={"DATABASE_URL": database})
    assert ran.code == 0, ran.err
    return ran.out.strip()


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def as_nobody(running: Mgmt, method: str, path: str, body: object = None) -> int:
    """The status that another user of this machine gets."""
    sent = "" if body is None else json.dumps(body)
    command = ["/usr/bin/python3", "-I", "-c", AS_NOBODY, method, running.address + path, sent]
    done = subprocess.run(
        command, user=NOBODY_UID, group=NOBODY_UID, extra_groups=[], cwd="/", env={},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return int(done.stdout)


# -- finding 1: loopback is not a credential


@needs_root
@pytest.mark.attack(1, "another local user posts a /bin/sh job to MGMT on loopback", "401, no job")
def test_another_user_cannot_add_a_job(running: Mgmt, database: str) -> None:
    assert as_nobody(running, "POST", "/v1/jobs", SHELL_JOB) == 401
    assert one(database, "select count(*) from control.job") == 0
    assert running.ask("POST", "/v1/jobs", SHELL_JOB).status == 200


@needs_root
@pytest.mark.attack(1, "another local user reads jobs and tasks, knocks, cancels, changes", "401")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/1"),
        ("GET", "/v1/jobs/1/tree"),
        ("GET", "/v1/tasks"),
        ("GET", "/v1/resources"),
        ("POST", "/v1/jobs/1/cancel"),
        ("POST", "/v1/jobs/claim"),
        ("POST", "/v1/tasks"),
        ("PUT", "/v1/resources/x"),
        ("POST", "/v1/knock"),
        ("PUT", "/api/entree/full/pass"),
    ],
)
def test_another_user_cannot_operate(running: Mgmt, method: str, path: str) -> None:
    assert as_nobody(running, method, path, None if method == "GET" else {}) == 401


@needs_root
@pytest.mark.attack(1, "another local user reads the secret of the data directory", "refused")
def test_another_user_cannot_read_the_secret(running: Mgmt) -> None:
    file = running.data / local_secret.FILE_NAME
    for directory in (file.parent, *file.parents[1:]):
        if directory.stat().st_mode & 0o001:
            break
        directory.chmod(
            directory.stat().st_mode | 0o001
        )  # so that only the file's mode protects it
    ran = subprocess.run(
        ["/bin/cat", file], user=NOBODY_UID, group=NOBODY_UID, extra_groups=[], cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert ran.stdout == ""
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.attack(
    1, "a request comes to MGMT on loopback through a proxy, without a token", "401"
)
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_a_proxy_is_not_this_machine(running: Mgmt, header: str) -> None:
    assert running.ask_unproven("GET", "/get_servers_map").status == 200
    told = running.ask_unproven("GET", "/get_servers_map", headers={header: "203.0.113.9"})
    assert told.problem == (401, "unproven")


@pytest.mark.attack(
    1, "a machine of the network posts a job to an MGMT that runs --insecure", "401"
)
def test_insecure_does_not_open_the_queue(database: str, tmp_path: Path) -> None:
    with reachable(database, tmp_path / "log", "--insecure") as running:
        assert running.ask_unproven("GET", "/get_servers_map").status == 200
        told = running.ask_unproven("POST", "/v1/jobs", SHELL_JOB)
        assert told.problem == (401, "unproven")


@pytest.mark.attack(
    1, "a program at MGMT's port learns what our components show", "it is good for no job"
)
def test_what_components_show_is_no_admin_credential(running: Mgmt) -> None:
    secret = local_secret.read(running.data)
    shown = local_secret.component_credential("", running.data, running.address)
    assert shown.startswith(local_secret.COMPONENT_PREFIX)
    assert secret not in shown
    assert running.ask_unproven("GET", "/get_links", headers=bearer(shown)).json == {}
    told = running.ask_unproven("POST", "/v1/jobs", SHELL_JOB, bearer(shown))
    assert told.problem == (403, "not_allowed")
    assert local_secret.component_credential("", running.data, "http://10.0.0.1:8411") == ""


@pytest.mark.attack(1, "a local user calls component endpoints where open_loopback is off", "401")
def test_loopback_can_be_closed(database: str, tmp_path: Path) -> None:
    settings = {"USHER_OPEN_LOOPBACK": "false"}
    with mgmt(database, tmp_path / "log", settings=settings) as running:
        for path in ("/get_links", "/get_chunks", "/v1/components", "/feeds"):
            assert running.ask_unproven("GET", path).problem == (401, "unproven")
        shown = local_secret.component_credential("", running.data, running.address)
        assert running.ask_unproven("GET", "/get_links", headers=bearer(shown)).json == {}


# -- finding 2: tokens are bound to a role


@pytest.mark.attack(2, "a crawler's token claims, extends, settles or reads jobs", "403")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs/claim", {"type": "attack", "host": "worker-1"}),
        ("POST", "/v1/jobs/extend", {"jobs": []}),
        ("POST", "/v1/jobs/settle", {"jobs": []}),
        ("POST", "/v1/jobs", SHELL_JOB),
        ("GET", "/v1/jobs", None),
        ("GET", "/v1/tasks", None),
    ],
)
def test_a_crawler_may_not_use_jobs(
    running: Mgmt, database: str, method: str, path: str, body: object
) -> None:
    crawler = bearer(token(database, "--type", "crawler"))
    assert running.ask_unproven(method, path, body, crawler).problem == (403, "not_allowed")


@pytest.mark.attack(2, "a manager's token claims jobs of another machine", "403; its own are given")
def test_the_token_decides_for_which_machine_jobs_are_claimed(running: Mgmt, database: str) -> None:
    for host in ("worker-1", "worker-2"):
        job = {"type": "t", "program": "true", "args": [host], "host_rule": host}
        assert running.ask("POST", "/v1/jobs", job).status == 200
    manager = bearer(token(database, "--type", "manager", "--address", "worker-1"))
    other = {"type": "t", "host": "worker-2", "n": 10}
    told = running.ask_unproven("POST", "/v1/jobs/claim", other, manager)
    assert told.problem == (403, "not_allowed")
    for own in ({"type": "t", "n": 10}, {"type": "t", "n": 10, "host": "Worker-1"}):
        told = running.ask_unproven("POST", "/v1/jobs/claim", own, manager)
        assert told.status == 200, told.body
        assert [job["args"] for job in told.json["jobs"]] in ([["worker-1"]], [])
    assert one(database, "select count(*) from control.job where state = 'running'") == 1


@pytest.mark.attack(2, "a caller without a claim asks what became of a job", "409, nothing else")
def test_a_wrong_claim_tells_nothing(running: Mgmt, database: str) -> None:
    assert running.ask("POST", "/v1/jobs", SHELL_JOB).status == 200
    known = one(database, "select id from control.job")
    wrong = {"claim": "00000000-0000-4000-8000-000000000000", "message": "x"}
    said = []
    for id_ in (known, known + 1000):
        told = running.ask_unproven("POST", f"/v1/jobs/{id_}/message", wrong)
        assert told.problem == (409, "claim_lost")
        said.append(told.json["detail"].replace(str(id_), "N"))
    assert said[0] == said[1]


def documented() -> list[tuple[str, str, dict[str, str]]]:
    """Method, path and cells of every row of docs/access.md."""
    lines = (DOCS / "access.md").read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    columns = table[0][1:]
    rows = []
    for name, *cells in table[2:]:
        method, path = name.strip("`").split(" ")
        rows.append((method, path, dict(zip(columns, cells, strict=True))))
    return rows


def test_the_table_is_what_the_endpoints_say() -> None:
    script = DOCS.parent / "scripts" / "access_table.py"
    drawn = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert drawn.stdout == (DOCS / "access.md").read_text(encoding="utf-8"), "run `make access`"
    assert {(method, path) for method, path, _ in documented()} == {
        (endpoint.method, endpoint.path) for endpoint in ENDPOINTS if not endpoint.old
    }


@pytest.mark.attack(2, "every token type calls every endpoint", "only what docs/access.md says")
def test_every_cell_of_the_table(database: str, tmp_path: Path) -> None:
    shown: dict[str, dict[str, str]] = {"nothing": {}, "nothing, on this machine": {}}
    for number, kind in enumerate(TYPES, 1):
        words = ("--type", kind, "--address", f"10.0.0.{number}:80")
        shown[kind] = bearer(token(database, kind, *words))
    for scope in ("read", "admin"):
        shown[scope] = bearer(token(database, scope, "--scope", scope))
    wrong = []
    with (
        mgmt(database, tmp_path / "here") as here,
        reachable(database, tmp_path / "there") as there,
    ):
        for method, path, cells in documented():
            for column, cell in cells.items():
                running = here if column == "nothing, on this machine" else there
                told = ask_cell(running, method, path, shown[column])
                is_let_in = told.status not in (401, 403)
                if is_let_in != bool(cell):
                    wrong.append((method, path, column, cell, told.status, told.body[:200]))
    assert not wrong


def ask_cell(running: Mgmt, method: str, path: str, headers: dict[str, str]) -> Reply:
    words = re.sub(r"{\w+}", "7", path)
    return running.ask_unproven(method, words, None if method == "GET" else {}, headers)


# -- finding 5: a token belongs to one component


@pytest.mark.attack(5, "a crawler's token declares another address than its own", "403")
def test_only_the_operator_moves_a_token(running: Mgmt, database: str) -> None:
    secret = token(database, "c", "--type", "crawler", "--address", "10.0.0.7:8421")
    at_home = Component(running, host="10.0.0.7:8421", token=secret)
    assert at_home.post("/set_component_state", state="online")["host"] == "10.0.0.7:8421"
    moved = Component(running, host="10.0.0.8:8421", token=secret)
    assert moved.declined("/set_component_state", state="online") == (403, "not_allowed")
    assert moved.ask("GET", "/get_links").problem == (403, "not_allowed")
    words = ("tokens", "move", "c", "10.0.0.8:8421")
    assert usher(*words, environment={"DATABASE_URL": database}).code == 0
    changed = Component(running, host="10.0.0.8:8421", token=secret)
    assert eventually_let_in(changed)
    assert at_home.declined("/set_component_state", state="online") == (403, "not_allowed")


def eventually_let_in(component: Component) -> bool:
    """Within the second for which MGMT remembers a token."""
    import time

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if component.ask("POST", "/set_component_state", {"state": "online"}).status == 200:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.attack(5, "a token without an address is used by two components", "403 for the second")
def test_the_first_call_binds_a_token(running: Mgmt, database: str) -> None:
    secret = token(database, "--type", "crawler")
    assert Component(running, host="10.0.0.7:8421", token=secret).get("/get_links") == {}
    second = Component(running, host="10.0.0.66:8421", token=secret)
    assert second.ask("GET", "/get_links").problem == (403, "not_allowed")


@pytest.mark.attack(5, "a caller without a token speaks for a component that has one", "403")
def test_another_caller_cannot_act_as_a_component_with_a_token(
    running: Mgmt, database: str
) -> None:
    secret = token(database, "--type", "index-server")
    Component(running, host="10.0.0.9:8441", token=secret).post(
        "/set_component_state", state="online"
    )
    double = Component(running, host="10.0.0.9:8441")
    assert double.declined("/set_component_state", state="error") == (403, "not_allowed")
    assert double.ask("GET", "/get_chunks").problem == (403, "not_allowed")


# -- finding 10: expiry, failures, what `read` sees


@pytest.mark.attack(10, "a token is used after it has expired", "401")
def test_tokens_expire(running: Mgmt, database: str) -> None:
    import time

    secret = token(database, "short", "--scope", "admin", "--expires", "1s")
    time.sleep(1.1)
    told = running.ask_unproven("GET", "/v1/jobs", headers=bearer(secret))
    assert told.problem == (401, "unproven")
    assert usher("tokens", "add", "x", "--scope", "read", "--expires", "never",
                 environment={"DATABASE_URL": database}).code == 2  # fmt: skip


@pytest.mark.attack(10, "a caller tries tokens until one is good", "429 after thirty a minute")
def test_many_bad_tokens_get_429(running: Mgmt, database: str) -> None:
    good = bearer(token(database, "--scope", "admin"))
    assert running.ask_unproven("GET", "/v1/jobs", headers=good).status == 200
    for number in range(callers.FAILURE_LIMIT):
        told = running.ask_unproven("GET", "/v1/jobs", headers=bearer(f"guess-{number}"))
        assert told.problem == (401, "unproven")
    told = running.ask_unproven("GET", "/v1/jobs", headers=bearer("guess"))
    assert told.problem == (429, "too_many_failures")
    assert int(told.headers["retry-after"]) > 0
    assert running.ask_unproven("GET", "/v1/jobs", headers=good).status == 200


@pytest.mark.attack(10, "a token for `read` looks for job arguments", "they are hidden")
def test_read_does_not_see_arguments(running: Mgmt, database: str) -> None:
    secret_job = {"type": "t", "program": "p", "args": ["--password=hunter2"], "data": "hunter2",
                  "key": "hunter2"}  # fmt: skip
    id_ = running.ask("POST", "/v1/jobs", secret_job).json["jobs"][0]["id"]
    task = {
        "type": "t",
        "program": "p",
        "args": ["hunter2"],
        "data": "hunter2",
        "periodicity": "1h",
    }
    task_id = running.ask("POST", "/v1/tasks", task).json["id"]
    reader = bearer(token(database, "--scope", "read"))
    for path in (
        "/v1/jobs",
        f"/v1/jobs/{id_}",
        f"/v1/jobs/{id_}/tree",
        "/v1/tasks",
        f"/v1/tasks/{task_id}",
    ):
        told = running.ask_unproven("GET", path, headers=reader)
        assert told.status == 200, (path, told.body)
        assert b"hunter2" not in told.body
        assert b"hunter2" in running.ask("GET", path).body
    for path in ("/v1/jobs?contains=hunter", "/v1/tasks?contains=hunter"):
        told = running.ask_unproven("GET", path, headers=reader)
        assert told.problem == (403, "not_allowed")
