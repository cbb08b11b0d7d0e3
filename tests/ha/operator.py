"""Follows the page: runs its commands on the machines, and starts Debian's units when they ask for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from pwd import getpwnam

from chaos.machines import Machine
from chaos.scale import SCALE
from ha.guide import Block, missing_lines
from ha.place import CommandFailed, Place

SECRET = "ha-secret-1"  # stands for each password of the page
SEE_SECONDS = 90 * SCALE
SEE_PAUSE_SECONDS = 1
# Debian's units: their user and command line.
UNITS = {
    "etcd": ("etcd", ("/usr/bin/etcd",)),
    "patroni": ("postgres", ("/usr/bin/patroni", "/etc/patroni/config.yml")),
    "haproxy": (
        "root",
        ("/usr/sbin/haproxy", "-Ws", "-f", "/etc/haproxy/haproxy.cfg", "-p", "/run/haproxy.pid"),
    ),
}
STARTED_BY_PACKAGE = {"etcd-server": "etcd"}
StartRole = Callable[[Place, str], None]


class Operator:
    """`start_role` starts one of Usher's own units; `machines` gets a Machine for each of Debian's."""

    def __init__(
        self,
        places: Mapping[str, Place],
        machines: dict[str, Machine],
        environment: Mapping[str, str],
        start_role: StartRole,
    ) -> None:
        self.places, self.machines, self.environment = places, machines, environment
        self.start_role = start_role
        self.variables = dict.fromkeys(places, "")

    def follow(self, block: Block) -> None:
        """Do what one block says, and wait until the last machine prints what the page shows."""
        if block.kind == "set":
            for name in self.places:
                self.variables[name] += block.for_machine(name).replace("…", SECRET)
            return
        for name in block.machines:
            output = self.run(name, block.text)
        if block.shown:
            self.see(block, output)

    def run(self, name: str, script: str) -> str:
        text = self.variables[name] + script
        return self.places[name].shell(text, self.environment, self.act)

    def see(self, block: Block, output: str) -> None:
        """Repeat the command until its output has the lines of the page."""
        deadline = time.monotonic() + SEE_SECONDS
        while missing := missing_lines(block.shown, output):
            if time.monotonic() > deadline:
                raise CommandFailed(f"{block.text} does not print {missing}, but:\n{output}")
            time.sleep(SEE_PAUSE_SECONDS)
            output = self.run(block.machines[-1], block.text)

    def act(self, place: Place, words: Sequence[str]) -> None:
        """Do what `systemctl` or `apt` was asked for; installed packages start their services as Debian's do."""
        program, verb, *names = [word for word in words if not word.startswith("-")]
        for name in names:
            if program == "apt" and name in STARTED_BY_PACKAGE:
                self.start(place, STARTED_BY_PACKAGE[name])
            elif verb == "disable":
                self.stop(place, name)
            elif verb in ("enable", "restart") and name in UNITS:
                self.start(place, name)
            elif verb == "enable":
                self.start_role(place, name)

    def stop(self, place: Place, unit: str) -> None:
        if unit in UNITS and (machine := self.machines.get(f"{place.name}-{unit}")):
            machine.end()

    def start(self, place: Place, unit: str) -> None:
        """Start a unit unless it runs, as `systemctl enable --now` does; its settings are read from its files."""
        user, words = UNITS[unit]
        machine = self.machines.get(f"{place.name}-{unit}")
        if machine is None:
            directory = place.root / unit
            directory.mkdir()
            name = f"{place.name}-{unit}"
            machine = Machine(name, unit, place, words, directory, {}, uid(user))
            self.machines[name] = machine
        machine.environment = unit_environment(place, unit)
        machine.start()


def uid(user: str) -> int | None:
    return None if user == "root" else getpwnam(user).pw_uid


def unit_environment(place: Place, unit: str) -> dict[str, str]:
    """Return the variables of Debian's unit: those of its user, and for etcd those of its EnvironmentFile."""
    base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    if unit == "patroni":
        return base | {"HOME": getpwnam("postgres").pw_dir}
    if unit == "etcd":
        own = {"ETCD_NAME": place.name, "ETCD_DATA_DIR": "/var/lib/etcd/default"}
        return base | own | place.settings("etc/default/etcd")
    return base
