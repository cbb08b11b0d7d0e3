"""A real `usher mgmt` process, and calls to it over real sockets."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from support.processes.command_forker import ForkedCommand, nursery
from usher import local_secret

WAIT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever was answered
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and code of an error, once it is sure that it has the shape all errors have."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        assert self.json["request_id"] == self.headers["x-request-id"]
        assert self.json["title"]
        assert self.json["detail"]
        return self.status, self.json["code"]


@dataclass(frozen=True, slots=True)
class Mgmt:
    """The server process and where it listens."""

    process: ForkedCommand | subprocess.Popen[str]
    address: str
    log: Path
    data: Path

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.removeprefix("http://").rpartition(":")
        return host, int(port)

    @property
    def proof(self) -> dict[str, str]:
        """The header by which the operator on this machine is known."""
        return {"Authorization": f"Bearer {local_secret.read(self.data)}"}

    @property
    def proof_line(self) -> str:
        """The same as a line of a request's head."""
        return f"Authorization: {self.proof['Authorization']}\r\n"

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request of the operator, on a connection of its own; a body that is not bytes is sent as JSON."""
        return self.ask_unproven(method, path, body, {**self.proof, **(headers or {})})

    def ask_unproven(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The same, of a caller on this machine that shows only these headers."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(*self.place, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path, sent, dict(headers or {}))
            got = connection.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return Reply(got.status, found, got.read())
        finally:
            connection.close()

    def get(self, path: str) -> Reply:
        return self.ask("GET", path)

    def knock(self, *urls: str, **more: object) -> Reply:
        return self.ask("POST", "/v1/knock", {"urls": list(urls), **more})

    def dial(self) -> socket.socket:
        return socket.create_connection(self.place, timeout=WAIT_SECONDS)

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        return self.process.wait(WAIT_SECONDS)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()


def run_command(
    words: list[str], environment: dict[str, str], stderr: IO[str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "usher", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def fork_command(words: list[str], environment: dict[str, str], stderr: IO[str]) -> ForkedCommand:
    reader, writer = os.pipe()
    with open(os.devnull, "rb") as stdin:  # noqa: PTH123 - a stream
        streams = [stdin.fileno(), writer, stderr.fileno()]
        process = nursery().start(words, environment, None, streams)
    os.close(writer)
    process.stdout = open(reader)  # noqa: PTH123, SIM115 - a pipe, which Mgmt closes
    return process


@contextmanager
def mgmt(
    dsn: str,
    log: Path,
    *words: str,
    level: str = "info",
    settings: Mapping[str, str] | None = None,
    is_forked: bool = True,
) -> Iterator[Mgmt]:
    """`usher mgmt` on any free port, once it is ready; killed at the end if it still runs.

    One that is not forked takes longer to start, and has its command line and LD_PRELOAD.
    """
    clean = {name: value for name, value in os.environ.items() if "USHER" not in name}
    data = log.with_name(f"{log.name}.data")
    environment = {**clean, "DATABASE_URL": dsn, "USHER_LOG_LEVEL": level, "USHER_DATA": str(data)}
    environment |= settings or {}
    command = ["mgmt", "--bind", "127.0.0.1:0", *words]
    with log.open("w") as stderr:
        start = fork_command if is_forked else run_command
        process = start(command, environment, stderr)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with Mgmt(process, address, log, data) as running:
        assert address, log.read_text()
        yield running


@contextmanager
def watchdog(dsn: str, *words: str, settings: Mapping[str, str] | None = None) -> Iterator[None]:
    """`usher watchdog` with these options, once it runs; killed at the end."""
    clean = {name: value for name, value in os.environ.items() if "USHER" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "usher", "watchdog", *words],
        env={**clean, "DATABASE_URL": dsn, **(settings or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"watchdog\n"
        yield
    finally:
        process.kill()
        process.communicate()
