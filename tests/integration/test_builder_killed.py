"""A killed builder resumes its claims when it is restarted, and its workers exit with it."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.mgmt.chunk_trade import component, free_bind, soon, titled, trading
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually

pytestmark = EMBEDDED
SLOW = b"<title>Slow</title>" + b"<div><p>word <b>bold</b>" * 300_000


@pytest.mark.soak
async def test_a_killed_builder_resumes_its_claims(database: str, tmp_path: Path) -> None:
    words = ("builder", "--bind", str(free_bind()), "--processes", "1")
    async with trading(database, tmp_path, lease=60) as trade:
        chunk = await trade.crawl(*(replace(titled(f"/{n}", "-"), body=SLOW) for n in range(3)))
        with component(trade, tmp_path, *words) as builder:
            assert await soon(lambda: workers_of(builder.pid))
            workers = workers_of(builder.pid)
            builder.kill()
            builder.wait()
        assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 5)
        assert trade.chunk(chunk) == ("building", "")
        with component(trade, tmp_path, *words):
            assert await soon(lambda: trade.chunk(chunk) == ("built", ""), 30), trade.chunk(chunk)
        attempts = trade.ask("select build_attempts from work.chunk where id = %s", chunk)
        assert attempts == [(1,)]


def workers_of(pid: int) -> list[int]:
    """The workers of a builder, which all its threads may have started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(one) for one in task.read_text().split()]
    return found
