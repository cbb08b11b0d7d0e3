"""Site templates: the lines of text that many pages of a host have, which builders move out of the main text.

Builders report the lines of a sample of each host's pages. The rules are in the schema (functions/site_templates.sql).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import array, load_statements
from usher.messages.builder import PageSample, SiteTemplate
from usher.mgmt.anchors import REINDEX_PAUSE

store = load_statements(__file__)
HOSTS_PER_UPDATE: Final = 50


async def chunk_templates(conn: Connection, chunks: Sequence[int]) -> dict[int, list[SiteTemplate]]:
    """The templates of the hosts of pages in chunks that a builder claimed."""
    templates: dict[int, list[SiteTemplate]] = {chunk: [] for chunk in chunks}
    for chunk, host, lines in await store.chunk_templates.tuples(conn, chunks=list(chunks)):
        templates[chunk].append(SiteTemplate(host, lines))
    return templates


async def pages_to_sample(conn: Connection, chunks: Sequence[int]) -> dict[int, dict[str, int]]:
    """The ids of pages in crawled chunks whose lines the builder reports, by key."""
    pages: dict[int, dict[str, int]] = {chunk: {} for chunk in chunks}
    for chunk, key, page in await store.pages_to_sample.tuples(conn, chunks=list(chunks)):
        pages[chunk][key] = page
    return pages


async def add_samples(conn: Connection, chunk: int, samples: Sequence[PageSample]) -> int:
    """Store the lines of pages of a chunk; returns how many pages changed."""
    if not samples:
        return 0
    lines = [(sample.page_id, line) for sample in samples for line in sample.lines]
    number: int = await store.add_samples.value(
        conn,
        chunk=chunk,
        pages=array([sample.page_id for sample in samples]),
        bodies=array([sample.body for sample in samples]),
        line_pages=array([page for page, _ in lines]),
        lines=array([line for _, line in lines]),
    )
    return number


async def update_templates(
    conn: Connection,
    *,
    now: datetime,
    n: int = HOSTS_PER_UPDATE,
    pause: timedelta = REINDEX_PAUSE,
) -> int:
    """Compute the templates of n hosts whose sample changed; returns how many there were.

    Pages that were indexed with less of the template are scheduled to be indexed again.
    """
    number: int = await store.update_templates.value(conn, n=n, pause=pause, now=now)
    return number


async def update_all_templates(conn: Connection, *, now: datetime) -> None:
    """Compute all templates, as `update_templates`."""
    while await update_templates(conn, now=now):
        pass


async def forget_samples(conn: Connection, pages: Sequence[int]) -> None:
    """Forget the lines of pages that the operator removed."""
    await store.forget_samples.run(conn, pages=list(pages))
