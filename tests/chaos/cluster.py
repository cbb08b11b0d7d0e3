"""The cluster under test: two machines of each role, PostgreSQL with a standby, tokens, a load balancer, a web site."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from chaos.machines import Machine, Supervisor
from chaos.network import Namespace, command, prepare_hub
from chaos.pages import HOSTS
from chaos.postgres import Pair
from chaos.scale import (
    CHUNK_LEASE_SECONDS,
    CRAWL_DELAY_SECONDS,
    JOB_LEASE_SECONDS,
    SCALE,
    START_SECONDS,
)
from usher.db.embedded.binaries import find_binaries

USHER = (sys.executable, "-m", "usher")
MGMT_PORT, SWITCH_PORT = 8411, 8410
WATCHDOG = ("--every", "1", "--misses", "3", "--probation", "3", "--grace", "20")
# Role, its command, how many, the port that it serves, and the type of its token.
ROLES: Sequence[tuple[str, tuple[str, ...], int, str]] = (
    ("crawler", ("crawler", "--pages", "10", "--chunks", "4"), 8421, "crawler"),
    ("builder", ("builder", "--processes", "1"), 8431, "index-builder"),
    ("server", ("index-server",), 8441, "index-server"),
    ("front", ("front",), 8400, "front-end"),
)
DISK_BYTES = 96 * 1024 * 1024  # of the data directory of a crawler, builder or index server
WORKERS = """
[worker.defaults]
reschedule_after = "1s"
backoff = 1.0
max_attempts = 1000
retry_after_kill = true
poll_interval = "1s"
"""


class Cluster:
    """Creates everything in `directory`; all of it ends with the harness's own namespaces."""

    def __init__(self, directory: Path, pg_bin: str = "") -> None:
        self.directory = directory
        self.pg_bin = pg_bin
        self.numbers = iter(range(1, 100))
        self.machines: dict[str, Machine] = {}
        self.supervisor = Supervisor([])
        self.admin_token = ""
        self.site_log = directory / "site-requests.log"
        self.job_log = directory / "job-runs.log"

    def namespace(self, name: str, addresses: Sequence[str] = ()) -> Namespace:
        number = next(self.numbers)
        return Namespace(name, number, addresses or [f"10.0.0.{10 + number}"])

    @cached_property
    def pair(self) -> Pair:
        nodes = [self.namespace("pg-1"), self.namespace("pg-2")]
        return Pair(nodes, self.directory, find_binaries(self.pg_bin))

    def database_url(self) -> str:
        """Return the address under which the components and this program find the database."""
        return self.pair.url()

    # -- starting

    def start(self, say: Callable[[str], None]) -> None:
        """Start everything in the order in which it is needed."""
        prepare_hub()
        (self.directory / "usher.toml").write_text(WORKERS)
        say("PostgreSQL and its standby")
        self.start_database()
        self.create_schema()
        # MGMT refuses to serve other machines before there is a token.
        self.admin_token = self.token_of("tokens", "add", "chaos", "--scope", "admin")
        say("web site and load balancer")
        self.add_site()
        self.add_mgmt()
        self.prepare_hosts()
        say("components with their tokens")
        self.add_components()
        self.add_database_roles()
        self.supervisor.machines = list(self.machines.values())
        self.supervisor.start()
        self.wait(self.is_ready, START_SECONDS, "every component is online")

    def start_database(self) -> None:
        for node in self.pair.nodes:
            node.namespace.create()
            self.machines[node.name] = node
        self.pair.create()

    def create_schema(self) -> None:
        self.usher("db", "migrate")
        self.usher("db", "roles", "create")
        self.usher("components", "rows", "--set", "2", "--yes")

    def environment(self, **more: str) -> dict[str, str]:
        base = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{Path(__file__).parents[1]}",
            "PYTHONUNBUFFERED": "1",
            "USHER_CONFIG": str(self.directory / "usher.toml"),
            "USHER_CHUNK_LEASE": str(CHUNK_LEASE_SECONDS),
            "USHER_JOB_LEASE": str(JOB_LEASE_SECONDS),
            "USHER_CONNECT_TIMEOUT": "60",  # as docs/machines.md says: longer than a failover
        }
        for name in ("PYTHONPYCACHEPREFIX", "CHAOS_FIRST_PAGES"):
            with suppress(KeyError):
                base[name] = os.environ[name]
        return {**base, **more}

    def usher(self, *words: str) -> str:
        """Run a command of the operator against the database and return its output."""
        result = subprocess.run(
            [*USHER, *words],
            env=self.environment(DATABASE_URL=self.database_url()),
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if result.returncode not in (0, 3):
            raise RuntimeError(f"usher {' '.join(words)}: {result.stderr.strip()}")
        return result.stdout

    def add(
        self, name: str, role: str, words: Sequence[str], addresses: Sequence[str] = (), **env: str
    ) -> Machine:
        """Create a machine with its namespace and directory; the caller starts it."""
        directory = self.directory / name
        directory.mkdir()
        namespace = self.namespace(name, addresses)
        namespace.create()
        machine = Machine(name, role, namespace, words, directory, self.environment(**env))
        self.machines[name] = machine
        return machine

    def add_site(self) -> None:
        words = [sys.executable, "-m", "chaos.site", str(self.site_log)]
        self.add("site", "site", words, HOSTS).start()

    def add_mgmt(self) -> None:
        url = self.database_url()
        addresses = []
        for number in (1, 2):
            mgmt = self.add(f"mgmt-{number}", "mgmt", [], DATABASE_URL=url)
            addresses.append(f"{mgmt.address}:{MGMT_PORT}")
            mgmt.words = [*USHER, "--data", str(mgmt.directory), "mgmt", "--bind", addresses[-1]]
            mgmt.start()
        switch = self.add("switch", "switch", [])
        listen = f"{switch.address}:{SWITCH_PORT}"
        switch.words = [sys.executable, "-m", "chaos.switch", listen, *addresses]
        switch.start()

    @property
    def mgmt_url(self) -> str:
        return f"http://{self.machines['switch'].address}:{SWITCH_PORT}"

    def add_components(self) -> None:
        """Add two of each role, each with a token that is bound to its address."""
        places = []
        for role, words, port, type_ in ROLES:
            for number in (1, 2):
                machine = self.add(f"{role}-{number}", role, [], **self.component_settings())
                address = f"{machine.address}:{port}"
                row = ["--row", str(number)] if role == "server" else []
                machine.words = [*USHER, "--data", str(machine.directory), *words, *row]
                machine.words = [*machine.words, "--bind", address]
                places.append((machine, type_, address))
        with ThreadPoolExecutor(4) as pool:
            tokens = pool.map(lambda place: self.token(*place), places)
            for (machine, _, _), token in zip(places, tokens, strict=True):
                mount_disk(machine.directory)
                machine.environment = {**machine.environment, "USHER_TOKEN": token}
                machine.start()

    def component_settings(self) -> dict[str, str]:
        return {
            "USHER_MGMT_URL": self.mgmt_url,
            "USHER_CONTACT": "https://chaos.example/bot",
            "USHER_ALLOW_PRIVATE": "10.77.1.0/24",
        }

    def token(self, machine: Machine, type_: str, address: str) -> str:
        return self.token_of("tokens", "add", machine.name, "--type", type_, "--address", address)

    def token_of(self, *words: str) -> str:
        return self.usher(*words).strip().splitlines()[-1].strip()

    def add_database_roles(self) -> None:
        """Add watchdogs, schedulers and managers, which need no token."""
        url = self.database_url()
        for role, options in (("watchdog", WATCHDOG), ("scheduler", ()), ("manager", ())):
            for number in (1, 2):
                name = f"{role}-{number}"
                machine = self.add(name, role, [], DATABASE_URL=url)
                own = ["--host", name] if role == "manager" else []
                machine.words = [*USHER, "--data", str(machine.directory), role, *options, *own]
                machine.start()

    # -- asking

    def is_ready(self) -> bool:
        components = self.api("GET", "/v1/components")
        health = [component["health"] for component in components["components"]]
        return health.count("healthy") >= 2 * len(ROLES)

    def wait(self, condition: Callable[[], bool], seconds: float, goal: str) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError, ValueError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{goal}: not within {seconds:.0f} s")
            time.sleep(0.5)

    def api(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Call MGMT as an administrator, through the load balancer; an OSError where it fails."""
        request = urllib.request.Request(  # noqa: S310 - an address of ours
            f"{self.mgmt_url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.admin_token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=10 * SCALE) as response:  # noqa: S310
            return json.load(response)

    def front_url(self, number: int) -> str:
        return f"http://{self.machines[f'front-{number}'].address}:8400"

    def of_role(self, *roles: str) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.role in roles]

    def prepare_hosts(self) -> None:
        """Make the hosts known with a short crawl delay, then ask for all of them.

        No crawler may run before: it would fetch pages between these requests, and then once more.
        """
        urls = [f"http://{host}/" for host in HOSTS]
        self.usher("add", *urls)
        delay = str(CRAWL_DELAY_SECONDS)
        self.usher("hosts", "set", *HOSTS, "--crawl-delay", delay)
        self.usher("add", "--full", "--pass", *urls)

    def stop(self) -> None:
        """End every process; the kernel removes namespaces and mounts with the harness."""
        self.supervisor.stopping.set()
        for machine in self.machines.values():
            machine.wanted = False
        for machine in self.machines.values():
            machine.end()


def mount_disk(directory: Path) -> None:
    """Give a directory a small file system of its own, which a fault can fill."""
    command("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "chaos", str(directory))
