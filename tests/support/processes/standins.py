"""Components as real processes that only tell their health; they can be frozen, thawed, killed and brought back."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAYS = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(server.getsockname()[1], flush=True)
body = b'{"status": "%s"}' % sys.argv[2].encode()
while True:
    client, _ = server.accept()
    client.recv(65536)
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    client.close()
"""


class Standin:
    """One component; `host` stays the same whatever happens to it."""

    def __init__(self, says: str = "healthy") -> None:
        self.port = 0
        self.start(says)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, says: str = "healthy") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", SAYS, str(self.port), says],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


@contextmanager
def standins(number: int) -> Iterator[list[Standin]]:
    """Start that many; kill those that still run at the end."""
    here: list[Standin] = []
    try:
        for _ in range(number):
            here.append(Standin())  # noqa: PERF401 - those made before a failure must be ended too
        yield here
    finally:
        for one in here:
            if one.process.poll() is None:
                one.kill()
