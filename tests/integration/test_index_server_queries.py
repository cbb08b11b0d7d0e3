"""Requests to an index server: invalid ones are refused, and a busy server refuses at once."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.index.stack import post
from support.mgmt.chunk_trade import ANY, soon
from usher.http.server.component import serve_component
from usher.index import rpc_handlers
from usher.index.rpc_handlers import QueryHandlers
from usher.index.tantivy_engine import TantivyEngine


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/search", b"", 400),
        ("/search", b"{", 400),
        ("/search", b"\xff", 400),
        ("/search", {}, 422),
        ("/search", {"query": 7}, 422),
        ("/search", {"query": "a", "k": 0}, 422),
        ("/search", {"query": "a", "k": 10**9}, 422),
        ("/search", {"query": "a", "offset": -1}, 422),
        ("/search", {"query": "a", "deadline": 0}, 422),
        ("/search", {"query": "a" * 30_000}, 422),
        ("/search", {"query": {"groups": [[{"text": "a"}] * 20] * 20}}, 422),
        ("/search", {"query": "a", "stats": {"documents": -1}}, 422),
        (
            "/search",
            {"query": "a", "stats": {"terms": {f"body:{n}": n for n in range(30_000)}}},
            422,
        ),
        ("/snippets", {"query": "a", "wanted": [["u", 1]] * 200}, 422),
        ("/snippets", {"query": "a", "wanted": [["u", -1]]}, 422),
        ("/stats", {"query": None}, 422),
        ("/common", {"most": 0}, 422),
        ("/common", {"most": 10**9}, 422),
        ("/search", {"query": "a", "deadline": 1e-9}, 503),
    ],
)
async def test_invalid_requests_are_refused(
    handlers: int, path: str, body: object, status: int
) -> None:
    got, told = await asyncio.to_thread(post, handlers, path, body)
    assert (got, told["status"]) == (status, status)


@pytest.mark.parametrize("path", ["/search", "/stats", "/suggest"])
async def test_fields_of_a_newer_front_end_are_ignored(handlers: int, path: str) -> None:
    status, answer = await asyncio.to_thread(post, handlers, path, {"query": "a", "later": [1]})
    assert (status, "later" in answer) == (200, False)


@pytest.fixture(scope="module")
async def handlers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    engine = TantivyEngine.open(tmp_path_factory.mktemp("engine"))
    made = QueryHandlers(1)
    made.engine = engine
    try:
        async with serve_component(made.endpoints(), ANY) as address:
            yield int(address.rpartition(":")[2])
    finally:
        made.close()
        engine.close()


async def test_a_busy_server_refuses_requests_at_once(tmp_path: Path) -> None:
    engine = TantivyEngine.open(tmp_path)
    made = QueryHandlers(1, max_waiting=3)
    made.engine = engine
    hold = threading.Event()
    slow = [asyncio.create_task(made._run("search", hold.wait, 0.3)) for _ in range(3)]
    await asyncio.sleep(0)
    async with serve_component(made.endpoints(), ANY) as address:
        port = int(address.rpartition(":")[2])
        status, told = await asyncio.to_thread(post, port, "/search", {"query": "a"})
        assert (status, told["detail"]) == (503, "3 requests are already waiting.")
        late = await asyncio.gather(*slow, return_exceptions=True)
        assert {str(one) for one in late} == {"No answer within 0.3 seconds."}
        hold.set()
        assert await soon(lambda: made._threads.waiting == 0)
        status, told = await asyncio.to_thread(post, port, "/search", {"query": "a"})
        assert (status, told) == (200, {})
    made.close()
    engine.close()


async def test_fast_requests_run_in_the_event_loop_and_others_in_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc_handlers, "FAST_SECONDS", 0.1)  # which no machine needs for nothing
    handlers, here = QueryHandlers(1), threading.get_ident()

    async def asked(seconds: float = 0.0, *, pause: float = -1.0) -> bool:
        """Whether this very thread did it, although the last answer was less than a pause ago."""
        monkeypatch.setattr(rpc_handlers, "IDLE_SECONDS", pause)

        def work() -> int:
            time.sleep(seconds)
            return threading.get_ident()

        return await handlers._run("search", work, 5.0) == here

    assert not await asked()  # its duration is not known yet
    assert await asked()
    assert not await asked(pause=60.0)  # others may wait
    assert await asked(1.2)
    assert not await asked()  # once too slow
    assert await soon(lambda: handlers._threads.waiting == 0)
    handlers.close()


async def test_no_request_runs_in_the_event_loop_while_a_thread_is_busy() -> None:
    handlers, hold = QueryHandlers(2), threading.Event()
    for _ in range(2):
        await handlers._run("stats", threading.get_ident, 5.0)
    slow = asyncio.create_task(handlers._run("search", hold.wait, 5.0))
    await asyncio.sleep(0.01)
    assert await handlers._run("stats", threading.get_ident, 5.0) != threading.get_ident()
    hold.set()
    assert await slow
    handlers.close()
