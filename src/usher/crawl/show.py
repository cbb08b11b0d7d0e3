"""One page as the crawler sees it, for a person: what `usher fetch` shows.

Comes from a URL; goes to values that can be printed. Nothing is stored, and nobody is told.
"""

import asyncio
from typing import Any

from usher.crawl import private_permission
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.http.fetch import FetchResponse
from usher.crawl.page import parse as page
from usher.crawl.page.document import PageDocument, from_pdf
from usher.crawl.page.parse import ParsedPage
from usher.crawl.page.pdf import Pdf
from usher.crawl.page.pdf_process import FAILURES
from usher.crawl.page_visit import PageVisit, PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.crawl.service import PRODUCT, make_fetcher
from usher.errors import BadInput, Unreachable
from usher.messages.crawler import PageToFetch, PrivateAccess
from usher.settings import Settings
from usher.urls import UrlRefusal, parse

FETCH_SECONDS = 120.0  # seconds for robots.txt and the page together


async def fetch_page(settings: Settings, text: str) -> PageVisit:
    """Fetch one page by the crawler's own code: robots.txt first, then the page.

    The operator names the URL, so a private host may be requested, at exactly this port.
    """
    url = parse(text)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"{text[:80]!r} cannot be fetched: {url.detail}")
    lease = ChunkLease(asyncio.get_running_loop().time() + FETCH_SECONDS)
    async with (
        make_fetcher(settings) as fetcher,
        PageVisitor(PolitenessPolicy(fetcher, PRODUCT)) as visitor,
    ):
        permission = await private_permission.needed_permission(url)
        access = PrivateAccess(permission.port, permission.addresses) if permission else None
        seen = await visitor.visit(PageToFetch(str(url), 0, private=access), lease)
    if seen is None:
        raise Unreachable(f"{url} asks for too long a rest.")
    return seen


def visit_report(seen: PageVisit) -> dict[str, Any]:
    """All that was seen."""
    told, answer, rules = seen.outcome.page, seen.answer, seen.rules
    documents = documents_of(seen)
    return {
        "url": str(answer.url) if answer else told.link,
        "status": told.status,
        "result": told.result,
        "why": told.reason,
        "findable": told.result == "success" and not told.noindex and bool(documents),
        "robots": rules.robots.rule(told.link) if rules and not rules.robots.wait else None,
        "delay": rules.robots.crawl_delay if rules else None,
        "type": told.content_type,
        "length": told.content_length if answer else None,
        "seconds": round(answer.seconds, 3) if answer else None,
        "ip": answer.ip if answer else None,
        "headers": answer.headers if answer else [],
        "moved_to": str(seen.outcome.moved_to) if seen.outcome.moved_to else None,
        "links": list(seen.outcome.links),
        "feeds": list(seen.outcome.feeds),
        "documents": documents,
        "sitemap": None if seen.sitemap is None else len(seen.sitemap.pages),
    }


def read(answer: FetchResponse, walk: ParsedPage, paper: Pdf | None) -> list[PageDocument]:
    """The documents of an answer; a PDF was read by the process with limits, never by this one."""
    if walk.kind == "pdf":
        if paper is None or paper in FAILURES:
            return []
        return from_pdf(paper, answer.url, noindex=walk.noindex)
    return page.extract_documents(
        answer.body,
        answer.url,
        media_type=answer.media_type,
        charset=answer.charset,
        robots_tags=answer.headers_of("x-robots-tag"),
    )


def documents_of(seen: PageVisit) -> list[dict[str, Any]]:
    answer, walk = seen.answer, seen.walk
    if answer is None or walk is None or walk.kind not in ("html", "text", "pdf"):
        return []
    found = read(answer, walk, seen.paper)
    return [
        {
            "url": one.url,
            "title": one.title,
            "language": one.language,
            "headings": one.headings,
            "description": one.description,
            "published": one.published,
            "text": one.text,
        }
        for one in found
    ]
