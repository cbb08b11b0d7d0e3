"""The cluster of docs/high-availability.md: its commands run on machines that have its names and addresses."""

import sys
from collections.abc import Sequence
from pathlib import Path

from chaos.cluster import MGMT_PORT, USHER, WATCHDOG, Cluster
from chaos.machines import Machine
from chaos.network import Namespace
from ha.guide import blocks
from ha.operator import SECRET, Operator
from ha.place import Place

ADDRESSES = {
    "pg1": "10.0.0.2",
    "pg2": "10.0.0.3",
    "etcd3": "10.0.0.4",
    "control1": "10.0.0.1",
    "control2": "10.0.0.6",
    "lb": "10.0.0.5",
    "front-1": "10.0.0.11",
    "front-2": "10.0.0.12",
}
PLACES = ("pg1", "pg2", "etcd3", "control1", "control2", "lb")
FIRST_OTHER_ADDRESS = 40
BALANCED_FRONT = 3  # the number of the front-ends behind the load balancer
USHER_UNIT = "usher-mgmt"  # the blocks before the one that starts it need only the database
ROLE_OPTIONS = {"watchdog": WATCHDOG, "scheduler": (), "manager": ()}


class HaCluster(Cluster):
    """Follows the page; what the page leaves to other pages is done as in the fault injection."""

    def __init__(self, directory: Path, *, is_bounded: bool) -> None:
        super().__init__(directory)
        self.places: dict[str, Place] = {}
        self.faster = [block for block in blocks() if block.kind == "faster" and is_bounded]
        steps = [block for block in blocks() if block.kind != "faster"]
        start = next(number for number, block in enumerate(steps) if USHER_UNIT in block.text)
        self.before, self.after = steps[:start], steps[start:]

    def namespace(self, name: str, addresses: Sequence[str] = ()) -> Namespace:
        number = next(self.numbers)
        own = ADDRESSES.get(name, f"10.0.0.{FIRST_OTHER_ADDRESS + number}")
        return Namespace(name, number, addresses or [own])

    def database_url(self) -> str:
        """The address for the harness, which has no HAProxy: both machines."""
        hosts = f"{ADDRESSES['pg1']},{ADDRESSES['pg2']}"
        return f"postgresql://usher:{SECRET}@{hosts}/usher?target_session_attrs=read-write"

    def start_database(self) -> None:
        for name in PLACES:
            root = self.directory / name
            root.mkdir()
            self.places[name] = Place(name, next(self.numbers), [ADDRESSES[name]], root)
            self.places[name].create()
        self.operator = Operator(self.places, self.machines, self.environment(), self.start_role)
        python_path = self.environment()["PYTHONPATH"]
        for name in ("control1", "control2"):
            text = f'#!/bin/sh\nPYTHONPATH={python_path} exec {sys.executable} -m usher "$@"\n'
            self.places[name].add_program("usher", text)
        for block in (*self.before, *self.faster):
            self.operator.follow(block)

    def create_schema(self) -> None:
        """The page has done it."""

    def add_mgmt(self) -> None:
        """Start the roles and the load balancer."""
        for block in self.after:
            self.operator.follow(block)

    def add_database_roles(self) -> None:
        """The page has done it."""

    def start_role(self, place: Place, unit: str) -> None:
        """Start one of Usher's units with the settings of usher.env on that machine."""
        role, number = unit.removeprefix("usher-"), place.name[-1]
        name = f"{role}-{number}"
        directory = place.root / role
        directory.mkdir()
        settings = place.settings("etc/usher/usher.env")
        words = [*USHER, "--data", str(directory), role, *ROLE_OPTIONS.get(role, ())]
        words += settings.get(f"{role.upper()}_OPTIONS", "").split()
        if role == "manager":
            words += ["--host", name]

        own = {key: text for key, text in settings.items() if not key.endswith("_OPTIONS")}
        environment = self.environment() | own
        machine = Machine(name, role, place, words, directory, environment)
        self.machines[name] = machine
        machine.start()

    @property
    def mgmt_url(self) -> str:
        return f"http://{ADDRESSES['lb']}:{MGMT_PORT}"

    def front_url(self, number: int) -> str:
        if number == BALANCED_FRONT:
            return f"http://{ADDRESSES['lb']}:8400"
        return super().front_url(number)
