"""Fetches one page as the crawler does and describes it, for `usher fetch`; nothing is stored or reported."""

import asyncio
from typing import Any, Final

from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.page.document import PageDocument, from_pdf
from usher.crawl.page.parse import extract_documents
from usher.crawl.page.pdf_process import FAILURES
from usher.crawl.page_visit import PageVisit, PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.crawl.private_permission import needed_permission
from usher.crawl.service import make_fetcher
from usher.errors import BadInput, Unreachable
from usher.messages.crawler import PageReport, PageToFetch, PrivateAccess
from usher.settings import Settings
from usher.urls import UrlRefusal, parse

FETCH_SECONDS: Final = 120.0  # for robots.txt and the page together


async def fetch_page(settings: Settings, text: str) -> PageVisit:
    """Visit one page: robots.txt first, then the page.

    The operator names the URL, so a private host may be requested, at exactly this port.
    """
    url = parse(text)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"{text[:80]!r} cannot be fetched: {url.detail}")
    lease = ChunkLease(asyncio.get_running_loop().time() + FETCH_SECONDS)
    async with make_fetcher(settings) as fetcher, PageVisitor(PolitenessPolicy(fetcher)) as visitor:
        permission = await needed_permission(url)
        access = PrivateAccess(permission.port, permission.addresses) if permission else None
        visit = await visitor.visit(PageToFetch(str(url), 0, private=access), lease)
    if visit is None:
        raise Unreachable(f"The crawl delay of {url} is longer than {FETCH_SECONDS:g} seconds.")
    return visit


def visit_report(visit: PageVisit) -> dict[str, Any]:
    """Return everything that is known about a visit, as values for JSON."""
    page, response, rules = visit.outcome.page, visit.response, visit.rules
    documents, result = documents_of(visit), result_name(page)
    has_rules = rules and not rules.robots.unavailable
    return {
        "url": str(response.url) if response else page.link,
        "status": page.status,
        "result": result,
        "why": page.reason or ("it has no text to index" if result == "empty" else None),
        "findable": result == "success",
        "robots": rules.robots.explain(page.link) if rules and has_rules else None,
        "delay": rules.robots.crawl_delay if rules else None,
        "type": page.content_type,
        "length": page.content_length if response else None,
        "seconds": round(response.seconds, 3) if response else None,
        "ip": response.ip if response else None,
        "headers": response.headers if response else [],
        "moved_to": str(visit.outcome.moved_to) if visit.outcome.moved_to else None,
        "links": list(visit.outcome.links),
        "feeds": list(visit.outcome.feeds),
        "documents": [
            {
                "url": document.url,
                "title": document.title,
                "language": document.language,
                "headings": document.headings,
                "description": document.description,
                "published": document.published,
                "text": document.text,
            }
            for document in documents
        ],
        "sitemap": None if visit.sitemap is None else len(visit.sitemap.pages),
    }


def result_name(page: PageReport) -> str:
    """The result of a visit as `usher pages` names it; "success" if the page can be indexed."""
    match page.result:
        case "barred":
            return "blocked"
        case "success" if page.noindex:
            return "noindex"
        case "success" if page.text64 is None:
            return "empty"
        case result:
            return str(result)


def documents_of(visit: PageVisit) -> list[PageDocument]:
    """Return the documents of a page; only the process with limits has read a PDF, never this one."""
    response, parsed = visit.response, visit.parsed
    if response is None or parsed is None:
        return []
    if parsed.kind == "pdf":
        if visit.pdf is None or visit.pdf in FAILURES:
            return []
        return from_pdf(visit.pdf, response.url, noindex=parsed.noindex)
    return extract_documents(
        response.body,
        response.url,
        media_type=response.media_type,
        charset=response.charset,
        robots_tags=response.headers_of("x-robots-tag"),
    )
