"""Index chunks and indexes of other versions: answers stay complete, and nothing is crawled or built again."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest
import tantivy

from support.index.chunk_files import page
from support.index.stack import post
from support.mgmt.chunk_trade import Trade, component, free_bind, soon, trading
from support.processes.crawls import EMBEDDED
from support.processes.measured import index_file
from usher.chunk_store import directory_name
from usher.http.server.listen import Bind
from usher.index import fields

pytestmark = EMBEDDED
NOW = datetime(2026, 11, 16, tzinfo=UTC)
LOADED = "select count(*) from work.placement where state = 'loaded'"
CHUNKS = "select id, build_attempts, built_at, index_sha256 from work.chunk order by id"


@pytest.fixture
async def trade(database: str, tmp_path: Path) -> AsyncIterator[Trade]:
    async with trading(database, tmp_path, lease=30) as market:
        yield market


async def build_records(trade: Trade, **more: object) -> int:
    """A chunk of one page whose document has only the first fields of a document, and these."""
    chunk = await trade.crawl(page("/0"))
    assert [claim.chunk_id for claim in await trade.builder.get_content_chunks()] == [chunk]
    [link] = trade.links[chunk]
    key = link.removeprefix("https://")
    first = {"key": key, "url": link, "host": key.split("/")[0], "chunk": chunk, "crawled": NOW}
    path = trade.index.path(chunk)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(index_file(chunk, [msgspec.msgpack.encode(first | more)], 1))
    file = trade.index.find(chunk)
    assert file
    await trade.builder.built(chunk, sha256=file.sha256, size=file.size)
    return chunk


def words_found(bind: Bind) -> set[str]:
    """The words of which the server finds exactly one page; none while it starts."""
    port = int(str(bind).rpartition(":")[2])
    words = set()
    with suppress(OSError):
        for word in ("amber", "cobalt", "violet"):
            status, answer = post(port, "/search", {"query": word})
            if status == 200 and len(answer.get("hits", [])) == 1:
                words.add(word)
    return words


def pages_shown(bind: Bind) -> dict[str, int]:
    """How many results the front-end shows for each word."""
    shown = {}
    for word in ("amber", "cobalt", "violet"):
        with urlopen(f"http://{bind}/search.json?q={word}", timeout=20) as answer:
            shown[word] = len(json.load(answer)["results"])
    return shown


def is_complete(bind: Bind) -> bool:
    with suppress(OSError):
        return set(pages_shown(bind).values()) == {1}
    return False


def make_old_index(path: Path) -> None:
    """Replace the index by one of the version before, with the same fields."""
    shutil.rmtree(path)
    path.mkdir()
    builder = tantivy.SchemaBuilder()
    for name in fields.TEXT_FIELDS:
        builder.add_text_field(name)
    builder.add_unsigned_field(f"version{fields.INDEX_VERSION - 1}")
    tantivy.Index(builder.build(), str(path)).writer().commit()


async def test_rows_of_other_versions_answer_completely(trade: Trade, tmp_path: Path) -> None:
    binds, front = [free_bind(), free_bind()], free_bind()
    folders = [tmp_path / "one", tmp_path / "two"]
    everything = {"amber", "cobalt", "violet"}
    complete = dict.fromkeys(everything, 1)

    def words(row: int) -> tuple[str, ...]:
        return ("index-server", "--row", str(row + 1), "--bind", str(binds[row]))

    trade.ask("update work.settings set rows = 2 returning rows")
    with ExitStack() as stack:
        for folder in folders:
            folder.mkdir()
        first = ExitStack()
        first.enter_context(component(trade, folders[0], *words(0)))
        stack.enter_context(component(trade, folders[1], *words(1)))
        assert await soon(
            lambda: trade.ask("select count(*) from work.component where row > 0") == [(2,)], 60
        )
        await build_records(trade, body="amber words of an old builder")
        await build_records(trade, body="violet words of a later builder", subtitle={"later": [1]})
        await trade.build("cobalt words of a present builder")
        assert await soon(lambda: trade.ask(LOADED) == [(6,)], 60)
        assert words_found(binds[0]) == words_found(binds[1]) == everything
        stack.enter_context(component(trade, folders[1], "front", "--bind", str(front)))
        assert await soon(lambda: is_complete(front), 60)
        before = trade.ask(CHUNKS)
        first.close()
        [engine] = folders[0].glob(f"index/{directory_name(str(binds[0]))}/engine")
        make_old_index(engine)
        assert await asyncio.to_thread(pages_shown, front) == complete  # from the other row
        stack.enter_context(component(trade, folders[0], *words(0)))
        while await asyncio.to_thread(words_found, binds[0]) != everything:
            assert await asyncio.to_thread(pages_shown, front) == complete
        assert "index_unusable" in (folders[0] / "components.log").read_text()
        assert trade.ask(CHUNKS) == before
        assert await asyncio.to_thread(pages_shown, front) == complete
