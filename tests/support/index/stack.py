"""A complete stack of processes: crawler, builder, index servers, and queries to every index server."""

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.processes.crawls import Crawls, crawls
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.stack import USHER


class Stack:
    """A crawl, and those who make it findable; servers by row and number, as in `server-1-2`."""

    def __init__(self, crawl: Crawls) -> None:
        self.crawl = crawl
        self.processes = crawl.processes

    def start(self, name: str, role: str, *words: str, program: Sequence[str] = USHER) -> None:
        """A component, or the one of that name again; `program` runs Usher's commands."""
        port = self.crawl.ports.setdefault(name, free_port())
        mgmt = f"http://127.0.0.1:{self.crawl.port}"
        command = (*program, role, "--mgmt", mgmt, "--bind", f"127.0.0.1:{port}", *words)
        self.processes.start(name, *command)

    def kill(self, name: str) -> None:
        """Kill a component with SIGKILL; it is not restarted."""
        self.processes.running[name].kill()
        self.processes.running[name].wait()

    def servers(self, rows: int, each: int) -> None:
        self.crawl.run("update work.settings set rows = %s", rows)
        for row in range(1, rows + 1):
            for number in range(1, each + 1):
                self.start(f"server-{row}-{number}", "index-server", "--row", str(row))

    def row(self, row: int) -> list[str]:
        return [name for name in self.crawl.ports if name.startswith(f"server-{row}-")]

    def ask(self, name: str, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        status, told = post(self.crawl.ports[name], path, body)
        assert status == 200, told
        return told

    def find(self, row: int, words: str) -> list[str]:
        """The URLs that the servers of a row find together, in no order; who is away or just comes finds nothing."""
        found = []
        for name in self.row(row):
            with suppress(OSError, http.client.HTTPException):
                status, told = post(self.crawl.ports[name], "/search", {"query": words, "k": 1000})
                assert status in {200, 503}, told
                found += [hit["url"] for hit in told.get("hits", [])]
        return sorted(found)

    def chunks(self) -> dict[str, int]:
        """How many chunks are where on their way."""
        stage = "case when propagated_at is null then coalesce(index_state, state) else 'propagated' end"
        return dict(self.crawl.ask(f"select {stage}, count(*) from work.chunk group by 1"))

    def propagated(self, seconds: float = 30) -> None:
        """Until every row has every chunk."""
        done = eventually(lambda: set(self.chunks()) <= {"propagated", "error"}, seconds)
        assert done, (self.chunks(), self.crawl.log[-4000:])


def post(port: int, path: str, body: object) -> tuple[int, Any]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        line.request("POST", path, sent)
        got = line.getresponse()
        return got.status, json.loads(got.read())
    finally:
        line.close()


@contextmanager
def running_stack(dsn: str, directory: Path, **settings: object) -> Iterator[Stack]:
    """A stack with MGMT only."""
    with crawls(dsn, directory, **settings) as crawl:
        yield Stack(crawl)
