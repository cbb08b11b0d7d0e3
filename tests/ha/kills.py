"""Ways in which a machine fails, most often the primary's. It returns at the end of the block, after the recovery."""

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from chaos.machines import Machine
from chaos.network import DROP_ALL
from ha.cluster import ADDRESSES, HaCluster
from ha.place import Place

DATABASE_MACHINES = ("pg1", "pg2")
POSTMASTER = "var/lib/postgresql/usher/postmaster.pid"
ANSWER_SECONDS = 3
Kill = Callable[[HaCluster, Place], AbstractContextManager[None]]


def units(cluster: HaCluster, place: Place) -> list[Machine]:
    """The supervised processes of a machine, in the order in which they start."""
    return [machine for machine in cluster.machines.values() if machine.namespace is place]


@contextmanager
def processes(cluster: HaCluster, place: Place) -> Iterator[None]:
    """Kill -9 of PostgreSQL and Patroni; systemd starts Patroni again."""
    patroni = cluster.machines[f"{place.name}-patroni"]
    postmaster = int((place.root / POSTMASTER).read_text().split()[0])
    patroni.end(signal.SIGKILL)
    os.kill(postmaster, signal.SIGKILL)
    patroni.start()
    yield


@contextmanager
def machine(cluster: HaCluster, place: Place) -> Iterator[None]:
    """Kill -9 of everything on the machine, also etcd; nothing starts again until it returns."""
    for unit in units(cluster, place):
        unit.end(signal.SIGKILL)
    while pids := place.pids():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    yield
    for unit in units(cluster, place):
        unit.start()


@contextmanager
def partition(_cluster: HaCluster, place: Place) -> Iterator[None]:
    """All packets to and from the machine are lost; its processes run."""
    with place.shaped(DROP_ALL, incoming=True, outgoing=True):
        yield


KILLS: Mapping[str, Kill] = {
    "machine": machine,
    "partition": partition,
    "processes": processes,
    "standby": machine,
    "control": machine,
}
MEANINGS = {
    "machine": "kill -9 of everything on the primary",
    "partition": "primary cut off from the network",
    "processes": "kill -9 of PostgreSQL and Patroni",
    "standby": "kill -9 of everything on the standby",
    "control": "kill -9 of everything on control1",
}
FAILING_OVER = frozenset({"machine", "partition"})


def answer(name: str, path: str) -> Any:  # noqa: ANN401 - JSON
    """Ask Patroni of a machine; None where it does not answer with 200."""
    url = f"http://{ADDRESSES[name]}:8008{path}"
    with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as got:
        return json.load(got)
    return None


def primary() -> str:
    """The machine whose Patroni says that it is the primary, or nothing."""
    return next((name for name in DATABASE_MACHINES if answer(name, "/primary")), "")


def target(kind: str) -> str:
    """The machine that a kill hits."""
    if kind == "control":
        return "control1"
    if kind == "standby":
        return next(name for name in DATABASE_MACHINES if name != primary())
    return primary()


def is_redundant() -> bool:
    """Whether there are a leader and a synchronous standby that streams."""
    cluster = answer(primary() or DATABASE_MACHINES[0], "/cluster") or {"members": []}
    roles = {member["role"]: member["state"] for member in cluster["members"]}
    return roles.get("leader") == "running" and roles.get("sync_standby") in (
        "running",
        "streaming",
    )


def missing_packages() -> list[str]:
    """The Debian packages that are missing here."""
    programs = {
        "patroni": "/usr/bin/patroni",
        "etcd-server": "/usr/bin/etcd",
        "etcd-client": "/usr/bin/etcdctl",
        "haproxy": "/usr/sbin/haproxy",
        "postgresql-15": "/usr/lib/postgresql/15/bin/postgres",
    }
    return [name for name, program in programs.items() if not Path(program).exists()]
