"""A leader that stands still (SIGSTOP) leads no more: another does, and it finds out when it goes on."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
import pytest

from support.mgmt.plain_components import one
from support.processes.killable import eventually
from usher.mgmt import watchdog
from usher.queue import scheduler

LEADS = """
import asyncio, sys
from usher.{module} import {name}
asyncio.run({name}(sys.argv[1], tick=0.05, silence=0.6).run(asyncio.Event()))
"""
HOLDER = """
select pid from pg_locks
where locktype = 'advisory' and granted and (classid::bigint << 32) | objid::bigint = %s
    and database = (select oid from pg_database where datname = current_database())
"""


class Kind(NamedTuple):
    """An actor of which one leads, the number of its lock, and a table that each of its rounds changes."""

    module: str
    name: str
    lock: int
    table: str


KINDS = [
    Kind("queue.scheduler", "Scheduler", scheduler.LEADER_LOCK, "control.job"),
    Kind("mgmt.watchdog", "Watchdog", watchdog.WATCHDOG_LOCK, "work.chunk"),
]


@contextmanager
def running(dsn: str, kind: Kind) -> Iterator[subprocess.Popen[bytes]]:
    """One that leads if it may, killed at the end whatever became of it."""
    program = LEADS.format(module=kind.module, name=kind.name)
    process = subprocess.Popen([sys.executable, "-c", program, dsn], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def leader(dsn: str, kind: Kind, *, after: int = 0) -> int:
    """The backend of the one that leads, as soon as there is one, or another than before."""
    assert eventually(lambda: one(dsn, HOLDER, kind.lock) not in (None, after))
    return int(one(dsn, HOLDER, kind.lock))


def state(dsn: str, backend: int) -> tuple[object, ...]:
    asked = "select array[state, wait_event_type] from pg_stat_activity where pid = %s"
    return tuple(one(dsn, asked, backend) or ())


def freeze_between(dsn: str, kind: Kind, process: subprocess.Popen[bytes]) -> None:
    del dsn, kind
    process.send_signal(signal.SIGSTOP)


def freeze_amid(dsn: str, kind: Kind, process: subprocess.Popen[bytes]) -> None:
    """In a transaction: frozen while it waits for a table."""
    backend = leader(dsn, kind)
    with psycopg.connect(dsn) as conn:
        conn.execute(f"lock table {kind.table} in exclusive mode".encode())
        assert eventually(lambda: state(dsn, backend) == ("active", "Lock"))
        process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: state(dsn, backend) in {("idle in transaction", "Client"), ()})


Freeze = Callable[[str, Kind, subprocess.Popen[bytes]], None]


@pytest.mark.parametrize("freeze", [freeze_between, freeze_amid])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_frozen_leader_leads_no_more(database: str, kind: Kind, freeze: Freeze) -> None:
    with running(database, kind) as frozen:
        first = leader(database, kind)
        freeze(database, kind, frozen)
        with running(database, kind):
            second = leader(database, kind, after=first)
            frozen.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            assert leader(database, kind) == second
            assert frozen.poll() is None, "it goes on, and waits for its turn"
