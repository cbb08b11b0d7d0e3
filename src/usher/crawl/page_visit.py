"""Visits one page: reads the host's rules, waits for its turn, requests the page and parses the response."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final, Self

from usher.addresses import split_host
from usher.crawl import fetch_outcome, sitemap
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.fetch_outcome import FetchOutcome
from usher.crawl.http.fetch import FetchResponse
from usher.crawl.page.fingerprint import join_problems, text64
from usher.crawl.page.parse import ParsedPage, parse_page
from usher.crawl.page.pdf import PdfText
from usher.crawl.page.pdf_process import PdfProcess
from usher.crawl.politeness import (
    CachedRobots,
    PolitenessPolicy,
    RequestCause,
    effective_crawl_delay,
)
from usher.crawl.sitemap import ParsedSitemap
from usher.messages.crawler import PageToFetch
from usher.private_hosts import HostPermission
from usher.urls import Scheme, Url, UrlRefusal

THREAD_PARSE_BYTES: Final = 300_000  # larger pages would block the loop
SITEMAP_KINDS: Final = frozenset({"sitemap", "text", "other"})  # kinds that may be a sitemap


@dataclass(frozen=True, slots=True)
class PageVisit:
    """A page that was visited, and everything that is known about it."""

    link: PageToFetch
    outcome: FetchOutcome
    response: FetchResponse | None = None
    parsed: ParsedPage | None = None
    sitemap: ParsedSitemap | None = None
    rules: CachedRobots | None = None
    pdf: PdfText | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class PageVisitor:
    """Visits pages politely; a context manager that ends its thread and its PDF process."""

    def __init__(self, policy: PolitenessPolicy) -> None:
        self._policy = policy
        # One thread, because a large page needs many times its size, and threads do not return memory.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usher-reader")
        self._pdfs = PdfProcess()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._pdfs.__aexit__(*error)

    async def visit(self, link: PageToFetch, lease: ChunkLease) -> PageVisit | None:
        """Visit a page; None if the lease ends before the request."""
        url = fetch_outcome.url_of(link.link)
        if isinstance(url, UrlRefusal) or url.scheme not in (Scheme.HTTPS, Scheme.HTTP):
            return PageVisit(link, fetch_outcome.failed_outcome(link, "not an http or https URL"))
        visit = await self._request(link, url, lease)
        target = visit.response.location if visit and visit.response else None
        if target is not None and fetch_outcome.same_page(url, target):
            # The same page by the other scheme, which has its own robots.txt.
            return await self._request(link, target, lease)
        return visit

    async def _request(self, link: PageToFetch, url: Url, lease: ChunkLease) -> PageVisit | None:
        """Request a page once, if its host allows it."""
        cause = RequestCause(permission=permission_of(link, url))
        rules = await self._policy.rules(url, delay=link.crawl_delay, lease=lease, cause=cause)
        if rules is None:
            return None
        if rules.robots.unavailable:
            reason = f"Could not read robots.txt ({rules.why}); the host is skipped"
            return PageVisit(link, fetch_outcome.failed_outcome(link, reason), rules=rules)
        if not rules.robots.allows(str(url)):
            rule = rules.robots.explain(str(url))
            return PageVisit(link, fetch_outcome.barred_outcome(link, rule), rules=rules)
        response = await self._policy.request(
            url,
            conditional_headers(link),
            delay=effective_crawl_delay(link, rules),
            lease=lease,
            cause=cause,
        )
        return None if response is None else await self._visit(link, url, response, rules)

    async def _visit(
        self, link: PageToFetch, url: Url, response: FetchResponse, rules: CachedRobots
    ) -> PageVisit:
        """Parse a response and decide what it means."""
        parsed, now, pdf = await self._parse(response), datetime.now(UTC), None
        if parsed and parsed.kind == "pdf":
            pdf = await self._pdfs.read(response.body)
            problem = join_problems(parsed.problem, pdf.problem)
            parsed = replace(parsed, text64=text64("\n".join(pdf.pages)), problem=problem)
        outcome = fetch_outcome.outcome_of(link, response, parsed, now=now)
        listed = sitemap_in(response, parsed)
        if (allowed := self._policy.allowed).entries:
            outcome = fetch_outcome.without_private(outcome, url.host, allowed)
            listed = listed and sitemap.filter_entries(
                listed, lambda entry: fetch_outcome.may_follow(allowed, url.host, entry.url)
            )
        return PageVisit(link, outcome, response, parsed, listed, rules, pdf, now)

    async def _parse(self, response: FetchResponse) -> ParsedPage | None:
        """Parse the body of a successful response."""
        if response.status is None or response.status // 100 != 2:  # noqa: PLR2004 - success
            return None
        if len(response.body) < THREAD_PARSE_BYTES:
            return parse_response(response)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, parse_response, response)


def permission_of(link: PageToFetch, url: Url) -> HostPermission | None:
    """Return the permission that MGMT sent with a page; it is valid for the page's own host."""
    if link.private is None:
        return None
    return HostPermission(split_host(url.host)[0], link.private.port, link.private.addresses)


def sitemap_in(response: FetchResponse, parsed: ParsedPage | None) -> ParsedSitemap | None:
    """Parse a response that is a sitemap, also a compressed one or a list of URLs."""
    if parsed is None or parsed.kind not in SITEMAP_KINDS:
        return None
    if not sitemap.is_sitemap(response.body, response.media_type, response.url.path):
        return None
    return sitemap.parse_sitemap(response.body, str(response.url))


def conditional_headers(link: PageToFetch) -> dict[str, str]:
    headers = {"If-None-Match": link.etag} if link.etag else {}
    if link.last_modified:
        date = link.last_modified.astimezone(UTC)
        headers["If-Modified-Since"] = format_datetime(date, usegmt=True)
    return headers


def parse_response(response: FetchResponse) -> ParsedPage:
    return parse_page(
        response.body,
        response.url,
        media_type=response.media_type,
        charset=response.charset,
        robots_tags=response.headers_of("x-robots-tag"),
    )
