"""`usher mgmt` as an operator meets it: starts, stops, troubles with the address and the database."""

import json
import signal
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.mgmt.mgmt_process import Mgmt, Reply, mgmt
from support.processes.commands import usher
from support.processes.killable import eventually


class Asking(threading.Thread):
    """A knock in a thread of its own; `reply` is there when it has ended."""

    def __init__(self, server: Mgmt, url: str, **more: object) -> None:
        super().__init__()
        self.server, self.url, self.more = server, url, more
        self.reply: Reply | None = None
        self.start()

    def run(self) -> None:
        self.reply = self.server.knock(self.url, **self.more)


def waiting(dsn: str) -> bool:
    """Whether a transaction waits for a lock."""
    with psycopg.connect(dsn) as conn:
        asked = "select from pg_stat_activity where wait_event_type = 'Lock'"
        return conn.execute(asked).fetchone() is not None


def test_term_lets_requests_under_way_end(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server, psycopg.connect(database) as holder:
        server.knock("https://slow.example/")
        holder.execute("lock work.guestbook in exclusive mode")
        asking = Asking(server, "https://slow.example/x")
        assert eventually(lambda: waiting(database))
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: any(line["event"] == "stopping" for line in server.lines))
        time.sleep(0.5)
        assert server.process.poll() is None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(server.place)
        holder.rollback()
        asking.join(20)
        assert asking.reply is not None
        assert asking.reply.json["reasons"] == {"new_page": 1}
        assert server.process.wait(20) == 0
    said = {line["event"]: line for line in server.lines}
    assert said["stopping"]["requests"] == 1
    assert list(said)[-1] == "stopped"


def test_a_second_signal_stops_now(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server, psycopg.connect(database) as holder:
        server.knock("https://slow.example/")
        holder.execute("lock work.guestbook in exclusive mode")
        with server.dial() as line:
            body = b'{"urls": ["https://slow.example/x"]}'
            head = "POST /v1/knock HTTP/1.1\r\nHost: localhost\r\n"
            head += server.proof_line
            head += f"Content-Length: {len(body)}\r\n\r\n"
            line.sendall(head.encode() + body)
            assert eventually(lambda: waiting(database))
            server.process.send_signal(signal.SIGTERM)
            assert eventually(lambda: any(line["event"] == "stopping" for line in server.lines))
            assert server.stop() == 0


def test_ctrl_c_closes_idle_connections_and_is_no_error(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server, server.dial() as idle:
        began = time.monotonic()
        assert server.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < 5
        assert idle.recv(1) == b""
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
    assert [line["event"] for line in server.lines] == ["serving", "stopping", "stopped"]


def test_not_ready_while_the_schema_is_behind(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server:
        with psycopg.connect(database) as conn:
            newest = "(select max(version) from work.schema_migrations)"
            gone = f"delete from work.schema_migrations where version = {newest} returning version"
            version = conn.execute(gone.encode()).fetchone()
        told = server.get("/readyz")
        assert told.problem == (503, "schema_out_of_date")
        assert "usher db migrate" in told.json["hint"]
        assert int(told.headers["retry-after"]) > 0
        assert server.get("/healthz").status == 200
        with psycopg.connect(database) as conn:
            conn.execute("insert into work.schema_migrations values (%s)", version)
        assert server.get("/readyz").status == 200


def test_not_ready_while_the_database_is_away(database: str, tmp_path: Path) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with (
        mgmt(database, tmp_path / "log") as server,
        psycopg.connect(make_conninfo(database, dbname="postgres"), autocommit=True) as admin,
    ):
        admin.execute(f"alter database {name} allow_connections false".encode())
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name]
        )
        assert server.get("/readyz").problem == (503, "unreachable")
        assert server.get("/healthz").status == 200
        admin.execute(f"alter database {name} allow_connections true".encode())
        assert eventually(lambda: server.get("/readyz").status == 200)


def test_it_works_under_the_role_of_the_door(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server:
        with psycopg.connect(database) as conn:
            conn.execute("revoke insert on work.guestbook from usher_door")
        told = server.knock("https://role.example/")
        assert told.problem == (500, "not_allowed")
        assert "usher db roles check" in told.json["hint"]


def test_only_the_log_has_the_details_of_a_bug(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server:
        with psycopg.connect(database) as conn:
            conn.execute("alter table work.settings rename column revision to version")
        told = server.knock("https://bug.example/")
        assert told.problem == (500, "failed")
        assert "revision" not in told.body.decode()
        (line,) = [line for line in server.lines if line["event"] == "bug"]
        assert line["id"] == told.json["request_id"]
        assert "UndefinedColumn" in line["traceback"]


SLOW_COMMIT = """
create function work.rest() returns trigger language plpgsql as 'begin perform pg_sleep(1); return null; end';
create constraint trigger rests after insert on work.hosts deferrable initially deferred
    for each row execute function work.rest();
"""


def test_a_host_that_another_caller_is_registering(database: str, tmp_path: Path) -> None:
    """What one request has learned but not yet committed must not mislead the next one."""
    with mgmt(database, tmp_path / "log") as server:
        with psycopg.connect(database) as conn:
            conn.execute(SLOW_COMMIT)
        first = Asking(server, "https://twice.example/1")
        time.sleep(0.4)
        second = server.knock("https://twice.example/2")
        first.join(20)
        assert first.reply is not None
        assert [first.reply.status, second.status] == [200, 200]
        assert second.json["reasons"] == {"new_page": 1}


def test_dry_runs_leave_nothing_behind_in_the_process(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server:
        asking = [Asking(server, "https://dry.example/", dry_run=True) for _ in range(6)]
        for one in asking:
            one.join(20)
            assert one.reply is not None
            assert one.reply.json["reasons"] == {"new_page": 1}
        assert server.knock("https://dry.example/").json["reasons"] == {"new_page": 1}


def test_a_request_that_is_not_http_cannot_fill_the_log(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log", level="debug") as server:
        with server.dial() as line:
            line.sendall(b"nonsense\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 400 ")
        [refused] = [line for line in server.lines if line["event"] == "refused"]
        assert (refused["level"], refused["status"]) == ("debug", 400)
        assert all(line["level"] in ("debug", "info") for line in server.lines)


def test_an_address_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = usher("--data", tmp_path / "data", "mgmt", "--bind", where)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"usher: Cannot listen at {where}: it is in use.\n  → ")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("where", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80"])
def test_other_machines_are_refused_without_tokens(tmp_path: Path, where: str) -> None:
    ran = usher("--data", tmp_path / "data", "mgmt", "--bind", where)
    assert (ran.code, ran.out) == (4, "")
    assert "--insecure" in ran.err
    assert f"usher --data {tmp_path / 'data'} tokens add" in ran.err


@pytest.mark.parametrize("where", ["nonsense", "127.0.0.1", ":80", "::1:80", "localhost:65536"])
def test_addresses_that_are_none(tmp_path: Path, where: str) -> None:
    ran = usher("--data", tmp_path / "data", "mgmt", "--bind", where)
    assert (ran.code, ran.out) == (2, "")
    assert "HOST:PORT" in ran.err


def test_insecure_answers_to_any_name(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log", "--bind", "0.0.0.0:0", "--insecure") as server:
        told = server.ask("GET", "/readyz", headers={"Host": "usher.example"})
        assert told.status == 200


def test_a_database_that_is_not_migrated_is_exit_code_6(empty_database: str) -> None:
    ran = usher("mgmt", "--bind", "127.0.0.1:0", environment={"DATABASE_URL": empty_database})
    assert (ran.code, ran.out) == (6, "")
    assert "usher db migrate" in ran.err


@pytest.mark.seed("000.31")
def test_mgmt_needs_only_a_data_directory(data: Path) -> None:
    """Makes its own PostgreSQL, knocks and stops; nothing is left running."""
    import subprocess
    import sys

    with subprocess.Popen(
        [sys.executable, "-m", "usher", "--data", data, "mgmt", "--bind", "localhost:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        server = Mgmt(process, process.stdout.readline().strip(), data / "unused", data)
        told = server.knock("https://own.example/")
        assert server.stop() == 0
    assert json.loads(told.body)["counts"]["admit"] == 1
