"""Stores the texts of links that crawlers report with `/add_links`."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from usher.anchor_text import clean_anchor
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.http.server.bodies import check_count
from usher.messages.crawler import MAX_URLS_PER_REQUEST, AddLinksRequest, PageAnchors
from usher.mgmt import anchors
from usher.mgmt.anchors import LinkedText
from usher.urls import UrlRefusal, parse

MAX_TEXTS_PER_LINK: Final = 3  # of a page


class LinkText(NamedTuple):
    """A link from one page to another, and its text."""

    page: str
    link: str
    text: str


def link_texts(pages: Sequence[PageAnchors], found_on: str) -> list[LinkText]:
    """Return the texts that are worth storing, of pages of the host `found_on`.

    That host decides whether its pages may name a private host.
    """
    texts: list[LinkText] = []
    counts: dict[tuple[str, str], int] = {}
    for anchors_of_page in pages:
        page = anchors_of_page.page
        url = parse(page)
        if isinstance(url, UrlRefusal) or url.host != found_on:
            continue
        for link, text in anchors_of_page.links:
            count = counts.get((page, link), 0)
            if count < MAX_TEXTS_PER_LINK and (cleaned := clean_anchor(text)):
                counts[page, link] = count + 1
                texts.append(LinkText(page, link, cleaned))
    check_count(texts, "anchors", MAX_URLS_PER_REQUEST)
    return texts


async def store_anchors(
    call: MgmtCall[AddLinksRequest], texts: Sequence[LinkText], found_on: str
) -> None:
    """Store the texts of links between known pages; the others are not in the guestbook."""
    door = call.context.doorkeeper
    pages = list(dict.fromkeys(text.page for text in texts))
    links = list(dict.fromkeys(text.link for text in texts))
    # MGMT gave the crawler its pages, so the filters of links do not apply to them.
    page_keys = dict(
        zip(pages, await door.locate(pages, source=found_on, filtered=False), strict=True)
    )
    link_keys = dict(zip(links, await door.locate(links, source=found_on), strict=True))
    linked = [
        LinkedText(*linked_key, *page_key, text)
        for page, link, text in texts
        if (linked_key := link_keys[link]) and (page_key := page_keys[page])
    ]
    async with call.context.mgmt_db.connection() as conn:
        await anchors.add_anchors(conn, linked, now=database_time(call))
