"""An index server that is killed at any moment has what MGMT believes, once."""

import asyncio
import random
from pathlib import Path

import pytest

from support.mgmt.chunk_trade import Trade, component, free_bind, soon, trading
from support.processes.crawls import EMBEDDED
from usher.index.tantivy_engine import TantivyEngine

pytestmark = EMBEDDED
CHUNKS, KILLS = 40, 6
LOADED = "select chunk_id from work.placement where state = 'loaded' order by 1"


@pytest.mark.soak
async def test_a_killed_server_has_what_mgmt_believes(database: str, tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - the same every time
    bind = str(free_bind())
    words = ("index-server", "--row", "1", "--bind", bind)
    async with trading(database, tmp_path) as trade:
        await trade.builder.set_state("online", type="index-builder")
        with component(trade, tmp_path, *words):
            assert await soon(lambda: count(trade, "work.component where row = 1") == 1)
        chunks: list[int] = []
        for kill in range(KILLS):
            with component(trade, tmp_path, *words):
                for number in range(CHUNKS // KILLS):
                    chunks += [await trade.build("violet words", f"violet {kill} {number}")]
                await asyncio.sleep(chance.uniform(0.0, 2.0))
        with component(trade, tmp_path, *words) as server:
            lives = (tmp_path / "components.log").read_text().count("serving_index")
            assert await soon(
                lambda: (tmp_path / "components.log").read_text().count("serving_index") > lives
            )
            assert await soon(lambda: [one for (one,) in trade.ask(LOADED)] == chunks, 30)
            server.terminate()
            assert await asyncio.to_thread(server.wait, 30) == 0
    [directory] = (tmp_path / "index").glob("127*/engine")
    engine = TantivyEngine.open(directory)
    try:
        assert engine.chunks() == set(chunks)
        assert engine.documents == 2 * len(chunks)
    finally:
        engine.close()


def count(trade: Trade, what: str) -> int:
    [(number,)] = trade.ask(f"select count(*) from {what}")
    return int(number)
