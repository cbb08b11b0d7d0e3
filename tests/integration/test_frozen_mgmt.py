"""MGMT that freezes (SIGSTOP) within a transaction: the database ends it, and the watchdog goes on."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, one
from support.processes.commands import clean
from support.processes.killable import eventually
from support.processes.standins import standins

BACKENDS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name like 'usher %%' and query ilike %s
"""
WAITING = f"{BACKENDS} and wait_event_type = 'Lock'"
IDLE = f"{BACKENDS} and state = 'idle in transaction'"
EVENT, HEALTH = "%insert into work.event%", "%update work.component%health%"
LAST_ROUND = "select ended_at from work.watchdog_round"


@contextmanager
def watchdog(dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "usher", "watchdog", "--every", "0.2"]
    process = subprocess.Popen(
        command,
        env=clean({"DATABASE_URL": dsn}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def declare(crawler: Component) -> None:
    """Change the state; MGMT does not answer in time."""
    with suppress(OSError):
        crawler.ask("POST", "/set_component_state", {"state": "waiting"})


def freeze_in_transaction(dsn: str, server: Mgmt, crawler: Component) -> threading.Thread:
    """Stop MGMT after it changed the component's row, while it waits to write the event."""
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table work.event in exclusive mode")
        request = threading.Thread(target=declare, args=(crawler,))
        request.start()
        assert eventually(lambda: one(dsn, WAITING, EVENT) == 1)
        server.process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: one(dsn, IDLE, EVENT) == 1)
    return request


@pytest.mark.soak
def test_mgmt_frozen_in_a_transaction_does_not_stop_the_watchdog(
    database: str, tmp_path: Path
) -> None:
    with (
        standins(1) as [standin],
        mgmt(database, tmp_path / "log") as server,
        watchdog(database) as dog,
    ):
        crawler = Component(server, host=standin.host)
        crawler.post("/set_component_state", state="online", type="crawler")
        assert eventually(lambda: one(database, LAST_ROUND) is not None)
        request = freeze_in_transaction(database, server, crawler)
        try:
            assert eventually(lambda: one(database, WAITING, HEALTH) == 1)
            before = one(database, LAST_ROUND)
            assert eventually(lambda: one(database, LAST_ROUND) > before, 90)
        finally:
            server.process.send_signal(signal.SIGCONT)
            request.join()
        assert dog.poll() is None
        assert crawler.post("/set_component_state", state="waiting")["state"] == "waiting"
