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
from usher.crawl.chunk_lease import Lease
from usher.crawl.fetch_outcome import Outcome
from usher.crawl.http.fetch import Answer
from usher.crawl.page import parse
from usher.crawl.page.fingerprint import sentence, text64
from usher.crawl.page.parse import Walk
from usher.crawl.page.pdf import Pdf
from usher.crawl.page.pdf_process import Papers
from usher.crawl.politeness import Cause, Manners, Rules
from usher.crawl.sitemap import Sitemap
from usher.messages.crawler import PageToFetch
from usher.private_hosts import Permission
from usher.urls import Refused, Scheme, Url

LARGE: Final = 300_000  # bytes: pages from here on are read in a thread, so that others go on
UNREAD: Final = frozenset({"sitemap", "text", "other"})  # what may be a sitemap


@dataclass(frozen=True, slots=True)
class Seen:
    """A page that was visited, with everything that was seen."""

    link: PageToFetch
    outcome: Outcome
    answer: Answer | None = None
    walk: Walk | None = None
    sitemap: Sitemap | None = None
    rules: Rules | None = None
    paper: Pdf | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Visitor:
    """Visits pages, with manners; to be entered, and left with no thread and no process behind."""

    def __init__(self, manners: Manners) -> None:
        self._manners = manners
        # One, for a large page takes many times its size in memory, and each thread keeps what it once had.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usher-reader")
        self._papers = Papers()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._papers.__aexit__(*error)

    async def visit(self, link: PageToFetch, lease: Lease) -> Seen | None:
        """Visit a page, if its turn comes while the lease is good; else nothing was asked."""
        url = fetch_outcome.url_of(link.link)
        if isinstance(url, Refused) or url.scheme not in (Scheme.HTTPS, Scheme.HTTP):
            return Seen(link, fetch_outcome.failed(link, "this is no address of the web"))
        seen = await self._ask(link, url, lease)
        other = seen.answer.location if seen and seen.answer else None
        if other is not None and fetch_outcome.same_page(url, other):
            # The same page by the other scheme, which has rules of its own.
            return await self._ask(link, other, lease)
        return seen

    async def _ask(self, link: PageToFetch, url: Url, lease: Lease) -> Seen | None:
        """One request for a page, if its host allows it."""
        cause = Cause(permission=permission_of(link, url))
        rules = await self._manners.rules(url, delay=link.crawl_delay, lease=lease, cause=cause)
        if rules is None:
            return None
        if rules.robots.wait:
            reason = f"robots.txt cannot be had ({rules.why}), so nothing is fetched"
            return Seen(link, fetch_outcome.failed(link, reason), rules=rules)
        if not rules.robots.allowed(str(url)):
            return Seen(link, fetch_outcome.barred(link, rules.robots.rule(str(url))), rules=rules)
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
        found, named = fetch_outcome.judge(link, answer, walk, now=now), sitemap_in(answer, walk)
        if (allowed := self._manners.allowed).entries:
            found = fetch_outcome.without_private(found, url.host, allowed)
            named = named and sitemap.only(
                named, lambda entry: fetch_outcome.leads(allowed, url.host, entry.url)
            )
        return Seen(link, found, answer, walk, named, rules, paper, now)

    async def _walk(self, answer: Answer) -> Walk | None:
        """What there is to read in an answer that brought something."""
        if answer.status is None or answer.status // 100 != 2:  # noqa: PLR2004 - success
            return None
        if len(answer.body) < LARGE:
            return walked(answer)
        return await asyncio.get_running_loop().run_in_executor(self._thread, walked, answer)


def with_paper(walk: Walk, paper: Pdf) -> Walk:
    """The walk of a PDF, with what the reader says of its text."""
    problem = sentence(walk.problem, paper.problem)
    return replace(walk, text64=text64("\n".join(paper.pages)), problem=problem)


def permission_of(link: PageToFetch, url: Url) -> Permission | None:
    """Return the permission that MGMT handed out with a page; it holds for the page's own host."""
    if link.private is None:
        return None
    return Permission(split_host(url.host)[0], link.private.port, link.private.addresses)


def sitemap_in(answer: Answer, walk: Walk | None) -> Sitemap | None:
    """The sitemap that an answer is, also one that comes as a packed file or as a list."""
    if walk is None or walk.kind not in UNREAD:
        return None
    is_one = sitemap.looks_like(answer.body, answer.media_type, answer.url.path)
    return sitemap.read(answer.body, str(answer.url)) if is_one else None


def conditions(link: PageToFetch) -> dict[str, str]:
    """What makes the request conditional."""
    found = {"If-None-Match": link.etag} if link.etag else {}
    if link.last_modified:
        found["If-Modified-Since"] = format_datetime(
            link.last_modified.astimezone(UTC), usegmt=True
        )
    return found


def walked(answer: Answer) -> Walk:
    return parse.walk(
        answer.body,
        answer.url,
        media_type=answer.media_type,
        charset=answer.charset,
        robots_tags=answer.headers_of("x-robots-tag"),
    )
