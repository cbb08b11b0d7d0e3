"""The index builder: chunks that are built, and chunks that cannot be built."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from support.db.fixtures import Server, clone
from support.index.chunk_files import (
    noise,
    small_disk,
)
from support.mgmt.chunk_trade import ANY, Trade, acting, free_bind, soon, texts_of, titled, trading
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from usher.errors import Conflict
from usher.http.client.download import download_chunk
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import read_bind
from usher.index.builder_service import BuilderOptions, run_builder

pytestmark = EMBEDDED
Builds = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture(scope="module")
async def trade(migrated: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trade]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        async with trading(dsn, tmp_path_factory.mktemp("trade")) as made:
            yield made


@pytest.fixture
def builds(trade: Trade, tmp_path: Path) -> Builds:
    """A builder in this process; its workers are separate processes."""

    def made(wish: BuilderOptions | None = None) -> AbstractAsyncContextManager[str]:
        asked = wish or BuilderOptions(bind=free_bind(), processes=1)
        settings = trade.settings(tmp_path)
        return acting(lambda stop, ready: run_builder(settings, asked, stop, ready=ready))

    return made


@pytest.mark.seed("001.20")
async def test_a_chunk_is_built_and_served_until_every_row_has_it(
    trade: Trade, builds: Builds, tmp_path: Path
) -> None:
    async with builds() as host:
        chunk = await trade.crawl(titled("/one", "One"), titled("/two", "Two"))
        empty = await trade.crawl(titled("/none", "None", meta={"result": "unchanged"}))
        for one in (chunk, empty):
            assert await soon(lambda one=one: trade.chunk(one) == ("built", "")), trade.chunk(one)  # type: ignore[misc]
        [(sha256, size)] = trade.ask(
            "select index_sha256, index_bytes from work.chunk where id = %s", chunk
        )
        kept = await download_chunk(host, chunk, "index", tmp_path / "pulled", sha256, size=size)
        assert sorted(texts_of(kept.path, chunk).values()) == ["One", "Two"]
        none = await download_chunk(host, empty, "index", tmp_path / "none")
        assert texts_of(none.path, empty) == {}
        assert list((tmp_path / "built").glob("*/incoming/*")) == []


async def test_a_chunk_that_cannot_be_built_is_reported_and_others_are_built(
    trade: Trade, builds: Builds
) -> None:
    gone = await trade.crawl(titled("/gone", "Gone"), kept=False)
    wrong = await trade.crawl(titled("/wrong", "Wrong"), damage=noise(1, 5_000))
    good = await trade.crawl(titled("/good", "Good"))
    async with builds():
        for chunk, words in ((gone, "no longer has the content"), (wrong, "is not a WARC file")):
            told = await soon(lambda chunk=chunk, words=words: words in trade.chunk(chunk)[1])  # type: ignore[misc]
            assert told, trade.chunk(chunk)
        [(crawler,)] = trade.ask("select host from work.component where type = 'crawler'")
        assert f"chunk {wrong} from {crawler} is not" in trade.chunk(wrong)[1]
        assert await soon(lambda: trade.chunk(good)[0] == "built")
    give_up(trade, gone, wrong)


def give_up(trade: Trade, *chunks: int) -> None:
    """Or the builders of other tests go on trying, and the page that its crawler lost is crawled again."""
    over = """
        update work.chunk set state = 'error', index_state = null, build_lease_until = null where id = any(%s)
        returning 1
    """
    assert len(trade.ask(over, list(chunks))) == len(chunks)


@pytest.mark.seed("001.20")
@pytest.mark.parametrize(
    "rewrite", [gzip.decompress, lambda data: gzip.compress(gzip.decompress(data))]
)
async def test_files_of_other_crawlers_are_built(
    trade: Trade, builds: Builds, rewrite: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    async with builds() as host:
        chunk = await trade.crawl(titled("/a", "A"), titled("/b", "B"), rewrite=rewrite)
        assert await soon(lambda: trade.chunk(chunk) == ("built", "")), trade.chunk(chunk)
        kept = await download_chunk(host, chunk, "index", tmp_path / "pulled")
        assert sorted(texts_of(kept.path, chunk).values()) == ["A", "B"]


async def test_errors_of_a_builder_show_no_path(
    trade: Trade, builds: Builds, tmp_path: Path
) -> None:
    async with builds():
        [directory] = {path.parent for path in (tmp_path / "built").glob("*/incoming")}
        blocked = directory / "000000"
        blocked.write_text("a file where a directory should be")
        chunk = await trade.crawl(titled("/a", "A"))
        assert await soon(lambda: trade.chunk(chunk)[1]), trade.chunk(chunk)
    reason = trade.chunk(chunk)[1]
    give_up(trade, chunk)
    assert reason.startswith(f"The index of chunk {chunk} cannot be written: "), reason
    assert "/" not in reason


async def test_the_builder_waits_for_a_silent_crawler(trade: Trade, builds: Builds) -> None:
    port = free_port()
    chunk = await trade.crawl(titled("/away", "Away"))
    with_port = f"127.0.0.1:{port}"
    [(crawler,)] = trade.ask("select crawler_id from work.chunk where id = %s", chunk)
    [(host,)] = trade.ask("select host from work.component where id = %s", crawler)
    move = "update work.component set host = %s where id = %s returning id"
    trade.ask(move, with_port, crawler)
    try:
        async with builds():
            other = await trade.crawl(titled("/else", "Else"))
            assert await soon(lambda: trade.chunk(chunk) == ("building", "")), trade.chunk(chunk)
            await asyncio.sleep(2.5)
            assert trade.chunk(chunk) == ("building", "")
            async with serve_component(
                chunk_endpoints(trade.content, "/get_chunk"), read_bind(with_port)
            ):
                for one in (chunk, other):
                    built = await soon(lambda one=one: trade.chunk(one)[0] == "built")  # type: ignore[misc]
                    assert built, trade.chunk(one)
    finally:
        # The crawler of `other` registers under this name again if MGMT looks it up anew.
        unless_taken = "and not exists (select from work.component where host = %s)"
        trade.ask(move.replace("returning", f"{unless_taken} returning"), host, crawler, host)


async def test_a_builder_that_stops_finishes_its_chunks(trade: Trade, builds: Builds) -> None:
    chunks = [await trade.crawl(*(titled(f"/{n}", "T") for n in range(20))) for _ in range(3)]
    async with builds():
        assert await soon(lambda: any(trade.chunk(chunk)[0] for chunk in chunks))
    assert "building" not in {trade.chunk(chunk)[0] for chunk in chunks}
    async with builds():
        assert await soon(lambda: {trade.chunk(chunk)[0] for chunk in chunks} == {"built"})


async def test_two_builders_cannot_use_one_directory(builds: Builds) -> None:
    bind = free_bind()
    async with builds(BuilderOptions(bind=bind, host="b:1")):
        with pytest.raises(Conflict, match="in use"):
            async with builds(BuilderOptions(bind=ANY, host="b:1")):
                pass


async def test_a_builder_reports_a_full_disk_until_there_is_space(
    trade: Trade, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "60m"):
        (disk / "filler").write_bytes(bytes(20_000_000))
        bind = free_bind()
        settings, wish = trade.settings(disk), BuilderOptions(bind=bind, processes=1)
        state = f"select state, state_reason from work.component where host = '{bind}'"
        async with acting(lambda stop, ready: run_builder(settings, wish, stop, ready=ready)):
            assert await soon(lambda: trade.ask(state)[0][0] == "error")
            assert "MB are free" in trade.ask(state)[0][1]
            chunk = await trade.crawl(titled("/room", "Room"))
            (disk / "filler").unlink()
            assert await soon(lambda: trade.chunk(chunk)[0] == "built")
            assert trade.ask(state)[0][0] == "online"
