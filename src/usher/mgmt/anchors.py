"""Anchor texts: what other pages call a page, counted by linking page, and what builders are told of them.

The rules are in the schema (functions/anchors.sql and anchors_changed.sql).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from usher.db.pool import Connection
from usher.db.statements import array, load_statements
from usher.messages.builder import AnchorCount, PageLinks

store = load_statements(__file__)
REINDEX_PAUSE: Final = timedelta(hours=1)  # in which more anchors of a page may come
ANCHORS_PER_CHECK: Final = 2_000


class LinkedText(NamedTuple):
    """The text of a link, from one page to another; each page by host number and path."""

    domain64: int
    path: str
    linking_domain64: int
    linking_path: str
    text: str


async def add_anchors(conn: Connection, links: Sequence[LinkedText], *, now: datetime) -> int:
    """Store the texts of links; returns how many texts are new or have a new linking page."""
    if not links:
        return 0
    domain64s, paths, linking_domain64s, linking_paths, texts = zip(*links, strict=True)
    number: int = await store.add_anchors.value(
        conn,
        domain64s=array(domain64s),
        paths=array(paths),
        linking_domain64s=array(linking_domain64s),
        linking_paths=array(linking_paths),
        texts=array(texts),
        now=now,
    )
    return number


async def page_links(conn: Connection, chunks: Sequence[int]) -> dict[int, list[PageLinks]]:
    """The links to the pages of chunks that a builder claimed; records that it was told of them."""
    pages: dict[int, list[PageLinks]] = {chunk: [] for chunk in chunks}
    for chunk, key, depth, inlinks, texts, counts in await store.page_links.tuples(
        conn, chunks=list(chunks)
    ):
        anchors = [AnchorCount(*pair) for pair in zip(texts, counts, strict=True)]
        pages[chunk].append(PageLinks(key, depth, inlinks, anchors))
    return pages


async def check_anchors(
    conn: Connection,
    *,
    first: int = 0,
    now: datetime,
    n: int = ANCHORS_PER_CHECK,
    pause: timedelta = REINDEX_PAUSE,
) -> int:
    """Check n texts of pages from `first` on: forget links that are gone, and schedule pages to index again.

    Returns the page to continue with, 0 at the end.
    """
    following = await store.check_anchors.value(conn, first=first, n=n, pause=pause, now=now)
    return following or 0


async def check_all_anchors(conn: Connection, *, now: datetime) -> None:
    """Check the anchors of all pages, as `check_anchors`."""
    first = await check_anchors(conn, now=now)
    while first:
        first = await check_anchors(conn, first=first, now=now)


async def forget_anchors(conn: Connection, pages: Sequence[int], *, now: datetime) -> int:
    """Forget the texts of links to and on pages that the operator removed; returns how many other pages changed."""
    number: int = await store.forget_anchors.value(conn, pages=list(pages), now=now)
    return number
