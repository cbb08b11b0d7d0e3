"""Site templates in the database: a bounded sample of each host, what builders are told, and pages to index again."""

import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from support.mgmt.admitted_pages import NOW
from support.mgmt.compaction import House
from support.models.site_templates import (
    MAX_SAMPLED_PAGES,
    MAX_TEMPLATE_LINES,
    template_of,
)
from usher.db.pool import Connection
from usher.messages.builder import MAX_LINES_PER_SAMPLE, PageSample
from usher.mgmt import anchors, compaction_merge, reindexing, site_templates
from usher.mgmt.anchors import REINDEX_PAUSE, LinkedText
from usher.mgmt.compaction import MergedChunk
from usher.mgmt.watchdog import Watchdog

MENU = [101, 102, 103]
LATER = NOW + timedelta(hours=3)


class Sampled(House):
    """Pages of a.com, built with their lines."""

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn)
        self.ids: dict[str, int] = {}

    async def begin(self) -> None:
        await super().begin()
        self.ids = dict(await self.ask("select path, id from work.guestbook"))

    def sample(self, path: str, lines: Iterable[int] = MENU, body: int | None = None) -> PageSample:
        page = self.ids[path]
        return PageSample(page, page if body is None else body, [*lines])

    async def build(self, *paths: str, lines: Iterable[int] = MENU, body: int | None = None) -> int:
        """Crawl, build and load pages, and report these lines for each."""
        chunk = await self.crawl(*paths)
        samples = [self.sample(path, lines, body) for path in paths]
        await site_templates.add_samples(self.conn, chunk, samples)
        return chunk

    async def update(self, now: datetime = NOW) -> list[int]:
        """Return the template of a.com."""
        await site_templates.update_all_templates(self.conn, now=now)
        return await self.template()

    async def template(self) -> list[int]:
        rows = await self.ask("select unnest(lines) from work.site_template")
        return sorted(line for (line,) in rows)

    async def due(self) -> dict[str, datetime]:
        """Return the pages to index again."""
        return dict(
            await self.ask(
                "select path, reindex_at from work.anchored_page "
                "join work.guestbook on id = page_id where reindex_at is not null"
            )
        )

    async def reindex(self, now: datetime = LATER) -> MergedChunk | None:
        async with self.conn.transaction():
            return await reindexing.reindex(self.conn, now=now)


@pytest.fixture
async def sampled(conn: Connection) -> Sampled:
    return await Sampled.of_mgmt(conn)


def numbered(first: int, last: int) -> list[str]:
    return [f"/{number}" for number in range(first, last)]


async def test_lines_of_many_pages_are_the_template(sampled: Sampled) -> None:
    await sampled.build(*numbered(0, 3))
    assert await sampled.update() == []
    await sampled.build("/3", lines=[*MENU[:2], 7])
    assert await sampled.update() == MENU[:2]
    chunk = await sampled.fetch("/4")
    [template] = (await site_templates.chunk_templates(sampled.conn, [chunk]))[chunk]
    assert (template.host, sorted(template.lines)) == ("a.com", MENU[:2])


async def test_a_report_that_comes_again_counts_once(sampled: Sampled) -> None:
    chunk = await sampled.crawl("/0", "/1")
    samples = [sampled.sample(path) for path in ("/0", "/1")]
    assert await site_templates.add_samples(sampled.conn, chunk, samples) == 2
    for _ in range(5):
        assert await site_templates.add_samples(sampled.conn, chunk, [*samples, *samples]) == 0
    await sampled.build("/0", lines=[*MENU, 9])  # crawled again
    assert await sampled.update() == []
    assert await sampled.ask("select count(*) from work.sampled_page") == [(2,)]


async def test_copies_of_a_page_count_once(sampled: Sampled) -> None:
    await sampled.build(*numbered(0, 20), body=1)
    assert await sampled.update() == []


async def test_pages_of_other_chunks_are_ignored(sampled: Sampled) -> None:
    chunk = await sampled.crawl("/0")
    samples = [sampled.sample("/1"), PageSample(987_654_321, 1, MENU)]
    assert await site_templates.add_samples(sampled.conn, chunk, samples) == 0
    assert await sampled.ask("select count(*) from work.sampled_page") == [(0,)]


async def test_the_sample_is_bounded_and_does_not_depend_on_the_order(sampled: Sampled) -> None:
    order = numbered(0, 40)
    random.Random(1).shuffle(order)  # noqa: S311 - a test
    for at in range(0, 40, 8):
        await sampled.build(*order[at : at + 8])
    pages = await sampled.ask("select page_id from work.sampled_page order by 1")
    lowest = await sampled.ask(
        "select id from work.guestbook order by work.sample_rank(id) limit %s", MAX_SAMPLED_PAGES
    )
    assert pages == sorted(lowest)
    await sampled.update()
    chunk = await sampled.fetch(*numbered(0, 40))
    wanted = (await site_templates.pages_to_sample(sampled.conn, [chunk]))[chunk]
    assert sorted(wanted.values()) == [page for (page,) in pages]
    assert wanted.keys() == {f"a.com{path}" for path, id_ in sampled.ids.items() if (id_,) in pages}


async def test_rows_have_bounds(sampled: Sampled) -> None:
    chunk = await sampled.crawl("/0")
    with pytest.raises(psycopg.errors.CheckViolation):
        async with sampled.conn.transaction():
            sample = sampled.sample("/0", range(MAX_LINES_PER_SAMPLE + 1))
            await site_templates.add_samples(sampled.conn, chunk, [sample])
    for part in range(3):  # 768 lines, each on ten pages
        lines = range(part * MAX_LINES_PER_SAMPLE, (part + 1) * MAX_LINES_PER_SAMPLE)
        await sampled.build(*numbered(part * 10, part * 10 + 10), lines=lines)
    assert len(await sampled.update()) == MAX_TEMPLATE_LINES


@pytest.mark.parametrize("seed", range(5))
async def test_sql_and_the_model_agree(sampled: Sampled, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test
    chunk = await sampled.crawl(*numbered(0, 40))
    ranks = dict(await sampled.ask("select id, work.sample_rank(id) from work.guestbook"))
    samples: dict[int, PageSample] = {}
    for _ in range(6):
        given = [
            sampled.sample(path, chance.sample(range(30), 6), chance.randrange(20))
            for path in chance.sample(numbered(0, 40), 12)
        ]
        await site_templates.add_samples(sampled.conn, chunk, given)
        samples |= {sample.page_id: sample for sample in given}
        lowest = sorted(samples, key=lambda page: ranks[page])[:MAX_SAMPLED_PAGES]
        samples = {page: samples[page] for page in lowest}
        assert set(await sampled.update()) == template_of(samples)


# -- pages that were indexed before


async def test_pages_indexed_before_the_template_are_indexed_again(sampled: Sampled) -> None:
    first = await sampled.build(*numbered(0, 5))
    await sampled.update()
    assert await sampled.due() == dict.fromkeys(numbered(0, 5), NOW + REINDEX_PAUSE)
    merge = await sampled.reindex()
    assert merge
    assert (merge.sources, merge.pages) == ([first], 5)
    assert await sampled.claim() == [merge.chunk_id]
    await compaction_merge.manifest(sampled.conn, [merge.chunk_id])
    await anchors.page_links(sampled.conn, [merge.chunk_id])
    told = await site_templates.chunk_templates(sampled.conn, [merge.chunk_id])
    assert [sorted(template.lines) for template in told[merge.chunk_id]] == [MENU]
    assert await site_templates.pages_to_sample(sampled.conn, [merge.chunk_id]) == {
        merge.chunk_id: {}
    }
    assert await sampled.due() == {}
    assert await sampled.built(merge.chunk_id)
    assert await sampled.indexed(*numbered(0, 5)) == {merge.chunk_id}
    await sampled.update()
    assert await sampled.due() == {}


async def test_pages_are_indexed_again_when_the_sample_has_doubled(sampled: Sampled) -> None:
    scheduled = []
    sizes = (0, 4, 6, 8, 15, 16, 31, 32, 40)
    for first, last in pairwise(sizes):
        await sampled.build(*numbered(first, last))
        await sampled.run(
            "update work.anchored_page set reindex_at = null, has_old_template = false"
        )
        await sampled.update()
        scheduled.append(len(await sampled.due()))
    assert scheduled == [4, 0, 8, 0, 16, 0, 32, 0]


async def test_a_check_of_anchors_does_not_cancel_it(sampled: Sampled) -> None:
    await sampled.build(*numbered(0, 5))
    [(host,)] = await sampled.ask("select domain64 from work.hosts")
    link = LinkedText(host, "/0", host, "/10", "lighthouse")
    await anchors.add_anchors(sampled.conn, [link], now=NOW)
    await sampled.run("insert into work.anchored_page select id, 1 from work.guestbook")
    await sampled.update()
    await anchors.check_all_anchors(sampled.conn, now=LATER)
    assert await sampled.due() == dict.fromkeys(numbered(0, 5), NOW + REINDEX_PAUSE)


async def test_the_watchdog_updates_templates(sampled: Sampled) -> None:
    await sampled.build(*numbered(0, 5))
    await Watchdog("").reindex(sampled.conn, NOW)
    assert await sampled.template() == MENU


async def test_an_update_computes_a_bounded_number_of_hosts(sampled: Sampled) -> None:
    await sampled.run("reset role")
    await sampled.run("insert into work.site_template (domain64) select generate_series(1, 7)")
    counts = [await site_templates.update_templates(sampled.conn, now=NOW, n=3) for _ in range(4)]
    assert counts == [3, 3, 1, 0]


async def test_a_removed_page_leaves_no_line(sampled: Sampled) -> None:
    await sampled.build(*numbered(0, 4))
    assert await sampled.update() == MENU
    await site_templates.forget_samples(sampled.conn, [sampled.ids["/0"]])
    assert await sampled.update() == []
    assert await sampled.ask("select count(*) from work.sampled_page") == [(3,)]


# -- plans and privileges


async def test_no_statement_reads_a_table_from_end_to_end(sampled: Sampled) -> None:
    chunk = await sampled.build(*numbered(0, 20))
    await sampled.run("reset role")
    await sampled.run(
        "insert into work.sampled_page select n, p, p, array[1, 2, 3] "
        "from generate_series(1, 2000) n, generate_series(1, 32) p"
    )
    await sampled.run(
        "insert into work.site_template (domain64, is_stale) select n, false from generate_series(1, 2000) n"
    )
    await sampled.run(
        "insert into work.guestbook (domain64, path, next_fetch) "
        "select domain64, '/more/' || n, now() from work.hosts, generate_series(1, 5000) n"
    )
    await sampled.run("analyze work.sampled_page, work.site_template, work.guestbook, work.chunk")
    await sampled.run("load 'auto_explain'")
    await sampled.run("set local auto_explain.log_min_duration = 0")
    await sampled.run("set local auto_explain.log_nested_statements = on")
    await sampled.run("set local client_min_messages = log")
    plans: list[str] = []
    sampled.conn.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    samples = [sampled.sample(path, [1, 2]) for path in numbered(0, 5)]
    assert await site_templates.add_samples(sampled.conn, chunk, samples) == 5
    assert await site_templates.update_templates(sampled.conn, now=NOW) == 1
    await site_templates.chunk_templates(sampled.conn, [chunk])
    await site_templates.pages_to_sample(sampled.conn, [chunk])
    await site_templates.forget_samples(sampled.conn, [sampled.ids["/0"]])
    text = "\n".join(plans)
    assert "sampled_page" in text
    large = ("sampled_page", "site_template", "guestbook")
    assert [
        line
        for line in text.splitlines()
        if "Seq Scan" in line and any(f"on {name}" in line for name in large)
    ] == []


@pytest.mark.parametrize("role", ["usher_door", "usher_reader"])
async def test_only_mgmt_writes_templates(sampled: Sampled, role: str) -> None:
    await sampled.run(f"set local role {role}")
    for text in (
        "insert into work.site_template (domain64) values (1)",
        "delete from work.sampled_page",
        "select work.add_samples(1, null, null, null, null)",
        "select work.update_templates(1, null, null)",
        "select work.forget_samples('{1}')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with sampled.conn.transaction():
                await sampled.run(text)
