"""A report whose answer is late: the chunk counts as reported, not as lost."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.index.stack import running_stack
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.hostile import page
from support.site.website import Website

pytestmark = EMBEDDED
DELAY_SECONDS = 2.0
REPORTS = (b"POST /set_content_chunk_metadata", b"POST /set_index_chunk_metadata")


class DelayingProxy:
    """Passes everything on; the answers on a connection that carried a report come late."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.delayed = 0

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        is_report = asyncio.Event()

        async def ask() -> None:
            with suppress(OSError):
                while part := await reader.read(65_536):
                    if part.startswith(REPORTS):
                        is_report.set()
                    back.write(part)
            back.close()

        async def answer() -> None:
            with suppress(OSError):
                while part := await there.read(65_536):
                    if is_report.is_set():
                        is_report.clear()
                        self.delayed += 1
                        await asyncio.sleep(DELAY_SECONDS)
                    writer.write(part)
            writer.close()

        try:
            await asyncio.gather(ask(), answer())
        finally:
            writer.transport.abort()
            back.transport.abort()


@contextmanager
def delaying(port: int) -> Iterator[tuple[DelayingProxy, int]]:
    """The proxy in a thread of its own, and its port."""
    proxy, own = DelayingProxy(port), free_port()
    is_serving, loops = threading.Event(), list[asyncio.AbstractEventLoop]()
    is_over = asyncio.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with await asyncio.start_server(proxy.connect, "127.0.0.1", own):
            is_serving.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_serving.wait(30)
        yield proxy, own
    finally:
        loops[0].call_soon_threadsafe(is_over.set)
        thread.join()


def test_a_chunk_that_was_reported_is_not_called_lost(database: str, tmp_path: Path) -> None:
    """The lease is renewed several times while the answer to the report is on its way."""
    with (
        Website({f"/{i}": page(f"Page {i}") for i in range(5)}) as web,
        running_stack(database, tmp_path, chunk_lease=1, chunk_wait=0) as stack,
        delaying(stack.crawl.port) as (proxy, port),
    ):
        mgmt = ("--mgmt", f"http://127.0.0.1:{port}", "--bind")
        stack.processes.start("crawler", *USHER, "crawler", *mgmt, f"127.0.0.1:{free_port()}")
        stack.processes.start("builder", *USHER, "builder", *mgmt, f"127.0.0.1:{free_port()}")
        stack.crawl.add(*(web.url(f"/{i}") for i in range(5)))
        built = "select count(*) from work.chunk where index_state is distinct from 'built'"
        some = "select count(*) > 0 from work.chunk"
        done = eventually(
            lambda: stack.crawl.ask(some) == [(True,)] and stack.crawl.ask(built) == [(0,)], 60
        )
        assert done, stack.crawl.log[-3000:]
        assert eventually(lambda: proxy.delayed >= 2)
        threading.Event().wait(DELAY_SECONDS)  # until the last answer has arrived
        assert "chunk_lost" not in stack.crawl.log
        assert stack.crawl.states() == {"crawled": 5}
