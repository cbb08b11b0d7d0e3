"""One page: its host's rules, its turn, the request, what came back, and what that means.

Comes from a chunk, or from `usher fetch`; goes to the chunk's file and to MGMT.
"""

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
from usher.crawl.page import parse
from usher.crawl.page.fingerprint import join_problems, text64
from usher.crawl.page.parse import ParsedPage
from usher.crawl.page.pdf import Pdf
from usher.crawl.page.pdf_process import PdfProcess
from usher.crawl.politeness import HostRules, PolitenessPolicy, RequestCause
from usher.crawl.sitemap import ParsedSitemap
from usher.messages.crawler import PageToFetch
from usher.private_hosts import PrivateHostPermission
from usher.urls import Scheme, Url, UrlRefusal

THREAD_PARSE_BYTES: Final = (
    300_000  # bytes: pages from here on are read in a thread, so that others go on
)
UNREAD: Final = frozenset({"sitemap", "text", "other"})  # what may be a sitemap


@dataclass(frozen=True, slots=True)
class PageVisit:
    """A page that was visited, with everything that was seen."""

    link: PageToFetch
    outcome: FetchOutcome
    answer: FetchResponse | None = None
    walk: ParsedPage | None = None
    sitemap: ParsedSitemap | None = None
    rules: HostRules | None = None
    paper: Pdf | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class PageVisitor:
    """Visits pages, with manners; to be entered, and left with no thread and no process behind."""

    def __init__(self, manners: PolitenessPolicy) -> None:
        self._manners = manners
        # One, for a large page takes many times its size in memory, and each thread keeps what it once had.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usher-reader")
        self._papers = PdfProcess()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._papers.__aexit__(*error)

    async def visit(self, link: PageToFetch, lease: ChunkLease) -> PageVisit | None:
        """Visit a page, if its turn comes while the lease is good; else nothing was asked."""
        url = fetch_outcome.url_of(link.link)
        if isinstance(url, UrlRefusal) or url.scheme not in (Scheme.HTTPS, Scheme.HTTP):
            return PageVisit(
                link, fetch_outcome.failed_outcome(link, "this is no address of the web")
            )
        seen = await self._ask(link, url, lease)
        other = seen.answer.location if seen and seen.answer else None
        if other is not None and fetch_outcome.same_page(url, other):
            # The same page by the other scheme, which has rules of its own.
            return await self._ask(link, other, lease)
        return seen

    async def _ask(self, link: PageToFetch, url: Url, lease: ChunkLease) -> PageVisit | None:
        """One request for a page, if its host allows it."""
        cause = RequestCause(permission=permission_of(link, url))
        rules = await self._manners.rules(url, delay=link.crawl_delay, lease=lease, cause=cause)
        if rules is None:
            return None
        if rules.robots.wait:
            reason = f"robots.txt cannot be had ({rules.why}), so nothing is fetched"
            return PageVisit(link, fetch_outcome.failed_outcome(link, reason), rules=rules)
        if not rules.robots.allowed(str(url)):
            return PageVisit(
                link, fetch_outcome.barred_outcome(link, rules.robots.rule(str(url))), rules=rules
            )
        delay = max(link.crawl_delay, rules.robots.crawl_delay or 0.0)
        answer = await self._manners.ask(
            url, conditions(link), delay=delay, lease=lease, cause=cause
        )
        if answer is None:
            return None
        walk, now = await self._walk(answer), datetime.now(UTC)
        paper = None
        if walk and walk.kind == "pdf":
            paper = await self._papers.read(answer.body)
            walk = with_paper(walk, paper)
        found, named = (
            fetch_outcome.outcome_of(link, answer, walk, now=now),
            sitemap_in(answer, walk),
        )
        if (allowed := self._manners.allowed).entries:
            found = fetch_outcome.without_private(found, url.host, allowed)
            named = named and sitemap.filter_entries(
                named, lambda entry: fetch_outcome.may_follow(allowed, url.host, entry.url)
            )
        return PageVisit(link, found, answer, walk, named, rules, paper, now)

    async def _walk(self, answer: FetchResponse) -> ParsedPage | None:
        """What there is to read in an answer that brought something."""
        if answer.status is None or answer.status // 100 != 2:  # noqa: PLR2004 - success
            return None
        if len(answer.body) < THREAD_PARSE_BYTES:
            return walked(answer)
        return await asyncio.get_running_loop().run_in_executor(self._thread, walked, answer)


def with_paper(walk: ParsedPage, paper: Pdf) -> ParsedPage:
    """The walk of a PDF, with what the reader says of its text."""
    problem = join_problems(walk.problem, paper.problem)
    return replace(walk, text64=text64("\n".join(paper.pages)), problem=problem)


def permission_of(link: PageToFetch, url: Url) -> PrivateHostPermission | None:
    """Return the permission that MGMT handed out with a page; it holds for the page's own host."""
    if link.private is None:
        return None
    return PrivateHostPermission(split_host(url.host)[0], link.private.port, link.private.addresses)


def sitemap_in(answer: FetchResponse, walk: ParsedPage | None) -> ParsedSitemap | None:
    """The sitemap that an answer is, also one that comes as a packed file or as a list."""
    if walk is None or walk.kind not in UNREAD:
        return None
    is_one = sitemap.is_sitemap(answer.body, answer.media_type, answer.url.path)
    return sitemap.parse_sitemap(answer.body, str(answer.url)) if is_one else None


def conditions(link: PageToFetch) -> dict[str, str]:
    """What makes the request conditional."""
    found = {"If-None-Match": link.etag} if link.etag else {}
    if link.last_modified:
        found["If-Modified-Since"] = format_datetime(
            link.last_modified.astimezone(UTC), usegmt=True
        )
    return found


def walked(answer: FetchResponse) -> ParsedPage:
    return parse.parse_page(
        answer.body,
        answer.url,
        media_type=answer.media_type,
        charset=answer.charset,
        robots_tags=answer.headers_of("x-robots-tag"),
    )
