"""Failover behind a load balancer with one address: MGMT, watchdog, scheduler and manager go on at the new primary."""

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import psycopg

from support.db.failover_pair import Standby, standby
from support.processes.commands import clean, usher
from support.processes.free_port import free_port
from support.processes.killable import eventually, kill_9, supervisor_pids
from support.processes.stack import USHER, ask
from usher import local_secret
from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server
from usher.mgmt import watchdog
from usher.queue import scheduler

REFUSED_CONNECTIONS = 12
HELD_LOCKS = """
select (classid::bigint << 32) | objid::bigint from pg_locks
where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())
"""
PROCESSES = {
    "watchdog": ("watchdog", "--every", "0.3"),
    "scheduler": ("scheduler",),
    "manager": ("manager", "--type", "t", "--type", "nightly"),
}


class LoadBalancer:
    """Forwards TCP connections to one port; the target is chosen when a connection is accepted."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.accepted = 0
        self._clients: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError), self._listener:
            while True:
                client, _ = self._listener.accept()
                self._clients.add(client)
                self.accepted += 1
                thread = threading.Thread(target=self._serve, args=(client, self.target))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, target: int) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", target)) as server:
            answers = threading.Thread(target=forward, args=(server, client))
            answers.start()
            forward(client, server)
            answers.join()
        self._clients.discard(client)

    def switch(self, target: int) -> None:
        """Send new connections there and cut those that are open."""
        self.target = target
        self.accepted = 0
        self._cut()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._cut()
        for thread in self._threads:
            thread.join()

    def _cut(self) -> None:
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


def forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@dataclass
class Site:
    """Two database nodes, the load balancer before them, and processes of ours that know only its address."""

    directory: Path
    primary: EmbeddedServerLease
    second: Standby
    balancer: LoadBalancer
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        password = self.primary.cluster.password()
        dsn = f"postgresql://usher:{password}@127.0.0.1:{self.balancer.port}/usher?sslmode=disable"
        return {"DATABASE_URL": dsn, "USHER_DATA": str(self.files)}

    @property
    def files(self) -> Path:
        return self.directory / "files"

    def start(self, name: str, *words: str) -> None:
        log = (self.directory / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(
            [*USHER, *words], env=clean(self.environment), stdout=log, stderr=log
        )
        log.close()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def fail_over(self) -> None:
        """Kill the primary; the balancer sends connections to the standby for a while before it is promoted."""
        kill_9(supervisor_pids(self.directory / "one")[0])  # or it would bring the primary back
        kill_9(self.primary.cluster.pid())
        self.balancer.switch(self.second.tcp_port)
        refused = eventually(lambda: self.balancer.accepted >= REFUSED_CONNECTIONS, 60)
        assert refused, self.logs()
        self.second.promote()

    def logs(self) -> str:
        return "\n".join(f"== {name}\n{self.log(name)[-3000:]}" for name in self.processes)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextmanager
def site(directory: Path) -> Iterator[Site]:
    directory.mkdir(mode=0o711)
    with lease_server(directory / "one", port=free_port()) as primary:
        balancer = LoadBalancer(primary.cluster.tcp_port)
        second = standby(primary.cluster, directory / "two", free_port())
        second.start()
        here = Site(directory, primary, second, balancer)
        try:
            yield here
        finally:
            here.end()
            balancer.close()
            second.stop()


def knock(here: Site, port: int, url: str) -> bool:
    """Whether MGMT admits a URL, asked by the operator of its machine."""
    proof = {"Authorization": f"Bearer {local_secret.read(here.files)}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", "/v1/knock", json.dumps({"urls": [url]}), proof)
        return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def done(dsn: str, type_: str) -> bool:
    logged = f"select count(*) from control.job_log where type = '{type_}' and state = 'completed'"
    return ask(dsn, logged) != [(0,)]


def leaders(dsn: str) -> set[object]:
    return {lock for (lock,) in ask(dsn, HELD_LOCKS)} & {
        watchdog.WATCHDOG_LOCK,
        scheduler.LEADER_LOCK,
    }


def caught_up(here: Site) -> bool:
    """Whether the standby has all that the primary wrote."""
    [(written,)] = ask(here.primary.dsn, "select pg_current_wal_lsn()")
    reached = f"select coalesce(pg_last_wal_replay_lsn() >= '{written}', false)"
    return ask(here.second.dsn(), reached) == [(True,)]


def test_every_process_survives_a_failover_behind_one_address(data: Path) -> None:
    with site(data) as here:
        assert usher("db", "migrate", environment=here.environment).code == 0
        assert usher("db", "roles", "create", environment=here.environment).code == 0
        port = free_port()
        here.start("mgmt", "mgmt", "--bind", f"127.0.0.1:{port}")
        for name, words in PROCESSES.items():
            here.start(name, *words)
        dsn = here.primary.dsn
        both = {watchdog.WATCHDOG_LOCK, scheduler.LEADER_LOCK}
        assert eventually(lambda: leaders(dsn) == both, 60), here.logs()
        assert eventually(lambda: "manager at" in here.log("manager"), 60), here.logs()
        assert eventually(lambda: knock(here, port, "https://example.com/1"), 60), here.logs()
        assert eventually(lambda: caught_up(here)), here.logs()

        here.fail_over()

        dsn = here.second.dsn()
        assert eventually(lambda: leaders(dsn) == both, 60), here.logs()
        with psycopg.connect(dsn) as conn:
            conn.execute("insert into control.job (type, program) values ('t', 'true')")
            conn.execute(
                "insert into control.task (type, program, periodicity, next_run) "
                "values ('nightly', 'true', '1 day', now())"
            )
        assert eventually(lambda: done(dsn, "t"), 60), here.logs()
        assert eventually(lambda: done(dsn, "nightly"), 60), here.logs()
        assert eventually(lambda: knock(here, port, "https://example.com/2"), 60), here.logs()
        rounds = "select count(*) from work.watchdog_round where ended_at > now() - interval '5 s'"
        assert eventually(lambda: ask(dsn, rounds) == [(1,)], 60), here.logs()
        for name, process in here.processes.items():
            assert process.poll() is None, here.log(name)
            assert "Traceback" not in here.log(name), here.log(name)
