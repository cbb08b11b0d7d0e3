"""The fault types: each is a context manager that begins a fault on a machine and ends it."""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.cluster import Cluster
from chaos.machines import Machine
from chaos.network import DROP_ALL, NETEM, SLOW, has_netem

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
SKEWS = {"clock-ahead": "+1h", "clock-behind": "-10m"}
FILL_BYTES = 1 << 20
START_SECONDS = 10  # a process that starts with another clock must get to work
COMPONENTS = ("crawler", "builder", "server", "front")
DATABASE_ROLES = ("mgmt", "watchdog", "scheduler", "manager")
Fault = Callable[[Cluster, Machine], AbstractContextManager[None]]


@contextmanager
def kill(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    """Kill -9, and start it again at the end."""
    machine.end(signal.SIGKILL)
    try:
        yield
    finally:
        machine.start()


@contextmanager
def freeze(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    machine.send(signal.SIGSTOP)
    try:
        yield
    finally:
        machine.send(signal.SIGCONT)


@contextmanager
def partition(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    with machine.namespace.shaped(DROP_ALL, incoming=True, outgoing=True):
        yield


@contextmanager
def lose_incoming(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    with machine.namespace.shaped(DROP_ALL, incoming=True, outgoing=False):
        yield


@contextmanager
def lose_outgoing(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    with machine.namespace.shaped(DROP_ALL, incoming=False, outgoing=True):
        yield


@contextmanager
def slow_link(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    """64 kbit/s with a short queue: packets wait, and those that do not fit are lost."""
    with machine.namespace.shaped(SLOW, incoming=True, outgoing=True):
        yield


@contextmanager
def netem(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    with machine.namespace.shaped(NETEM, incoming=True, outgoing=True):
        yield


@contextmanager
def full_disk(_cluster: Cluster, machine: Machine) -> Iterator[None]:
    """Fill the file system of the machine's data directory."""
    filler = machine.directory / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            fill(file.fileno())
        yield
    finally:
        filler.unlink(missing_ok=True)


def fill(descriptor: int) -> None:
    size = FILL_BYTES
    while size:
        try:
            os.write(descriptor, bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            size //= 2


def clock_skew(offset: str) -> Fault:
    """Return the fault that restarts a machine with its clock off by that much, and again with the true time."""

    @contextmanager
    def skewed(_cluster: Cluster, machine: Machine) -> Iterator[None]:
        extra = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": offset,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        machine.end(signal.SIGTERM)
        machine.start(extra)
        try:
            yield
        finally:
            machine.end(signal.SIGTERM)
            machine.start()

    return skewed


@contextmanager
def fail_over(cluster: Cluster, primary: Machine) -> Iterator[None]:
    """Kill -9 of the primary and promotion of the standby; the harness attaches a new standby after the recovery."""
    primary.end(signal.SIGKILL)
    try:
        yield
    finally:
        cluster.pair.promote()


@dataclass(frozen=True, slots=True)
class FaultType:
    begin: Fault
    roles: tuple[str, ...]
    missing: str = ""  # why this machine cannot do it
    min_seconds: float = 0


def fault_types() -> Mapping[str, FaultType]:
    """Every fault type with the roles that it may hit; `missing` where the kernel or a package lacks something."""
    all_roles = (*COMPONENTS, *DATABASE_ROLES)
    no_netem = "" if has_netem() else "the kernel has no sch_netem"
    no_clock = "" if FAKETIME.exists() else "the package faketime is not installed"
    return {
        "kill": FaultType(kill, all_roles),
        "freeze": FaultType(freeze, all_roles),
        "partition": FaultType(partition, (*all_roles, "postgres")),
        "lose-incoming": FaultType(lose_incoming, all_roles),
        "lose-outgoing": FaultType(lose_outgoing, all_roles),
        "slow-link": FaultType(slow_link, all_roles),
        "netem": FaultType(netem, all_roles, no_netem),
        "full-disk": FaultType(full_disk, ("crawler", "builder", "server")),
        **{
            name: FaultType(clock_skew(offset), all_roles, no_clock, START_SECONDS)
            for name, offset in SKEWS.items()
        },
        "pg-restart": FaultType(kill, ("postgres",)),
        "pg-standby": FaultType(kill, ("postgres",)),
        "pg-failover": FaultType(fail_over, ("postgres",)),
    }
