"""What a fetch means for its page: found again, unchanged, moved, gone, failed; and the links it leads to.

Comes from an answer and what was read in it; goes to MGMT as the page's result. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha1
from typing import Final, Literal

from usher.crawl.http.response import FetchResponse
from usher.crawl.page.parse import ParsedPage
from usher.messages.crawler import PageReport, PageToFetch
from usher.private_hosts import PrivateAllowList, may_lead
from usher.urls import Scheme, Url, UrlRefusal, parse

NOT_MODIFIED: Final = 304
GONE_STATUSES: Final = frozenset({404, 410})
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
PERMANENT_REDIRECT_STATUSES: Final = frozenset({301, 308})
RETRY_LATER_STATUSES: Final = frozenset({429, 503})  # answers that ask us to come another time
MAX_REASON_LENGTH: Final = 1_000
MAX_RETRY_AFTER_SECONDS: Final = 86_400.0
MAX_ETAG_LENGTH: Final = 1_000
MAX_CONTENT_TYPE_LENGTH: Final = 200
FIRST_YEAR: Final = 1990  # of the web
MAX_CLOCK_SKEW: Final = timedelta(days=1)  # that a server's clock may be


@lru_cache(maxsize=4_096)  # while a page is in hand, many ask
def url_of(link: str) -> Url | UrlRefusal:
    return parse(link)


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """A page's result, the links to send to the door, and where it moved to."""

    page: PageReport
    links: Sequence[str] = ()
    moved_to: Url | None = None
    feeds: Sequence[str] = field(default_factory=list)


def barred_outcome(link: PageToFetch, rule: str) -> FetchOutcome:
    return FetchOutcome(PageReport(link=link.link, result="barred", reason=f"robots.txt: {rule}"))


def failed_outcome(link: PageToFetch, reason: str) -> FetchOutcome:
    """Nothing came; `reason` says why."""
    return FetchOutcome(
        PageReport(link=link.link, result="failure", reason=reason[:MAX_REASON_LENGTH])
    )


def outcome_of(
    link: PageToFetch, answer: FetchResponse, walk: ParsedPage | None, *, now: datetime
) -> FetchOutcome:
    """What an answer means; `walk` is what was read in it, where there was something to read."""
    status = answer.status
    if status is None or (answer.error and not (answer.kind == "body" and walk is not None)):
        return refusal(link, answer, answer.error or "no answer", now)
    if status == NOT_MODIFIED and (link.etag or link.last_modified):
        return FetchOutcome(told(link, answer, "unchanged", ""))
    if status in REDIRECT_STATUSES:
        return redirected(link, answer, status)
    if status in GONE_STATUSES:
        return FetchOutcome(told(link, answer, "gone", f"HTTP {status}"))
    if walk is None or status // 100 != 2:  # noqa: PLR2004 - success
        return refusal(link, answer, f"HTTP {status}", now)
    return fetched(link, answer, walk, now)


def refusal(link: PageToFetch, answer: FetchResponse, reason: str, now: datetime) -> FetchOutcome:
    page = told(link, answer, "failure", reason)
    rest = answer.retry_after(now)
    page.retry_after = None if rest is None else min(max(rest, 0.0), MAX_RETRY_AFTER_SECONDS)
    return FetchOutcome(page)


def redirected(link: PageToFetch, answer: FetchResponse, status: int) -> FetchOutcome:
    """It is elsewhere: the target knocks as a page of its own."""
    target = answer.location
    if target is None or is_itself(link, target):
        where = "does not say where it leads" if target is None else "leads back to itself"
        return FetchOutcome(told(link, answer, "failure", f"HTTP {status} that {where}"))
    how = "moved for good" if status in PERMANENT_REDIRECT_STATUSES else "sends elsewhere"
    page = told(link, answer, "moved", f"HTTP {status}, {how}: {target}")
    return FetchOutcome(page, [str(target)], target)


def fetched(
    link: PageToFetch, answer: FetchResponse, walk: ParsedPage, now: datetime
) -> FetchOutcome:
    same = link.text64 is not None and link.text64 == str(walk.text64) and not walk.noindex
    page = described(told(link, answer, "unchanged" if same else "success", ""), answer, now)
    page.text64 = str(walk.text64) if walk.text64 else None
    links = list(walk.links)
    elsewhere = aside(link, walk)
    page.noindex = walk.noindex or bool(elsewhere)
    if elsewhere:
        page.result = "success"
        links.append(elsewhere)
    reasons = [
        "asks not to be found" if walk.noindex else "",
        f"its canonical page is {elsewhere}" if elsewhere else "",
        answer.error,
        f"{walk.dropped:,} of its links are too many" if walk.dropped else "",
        walk.problem,
    ]
    page.reason = "; ".join(filter(None, reasons))[:MAX_REASON_LENGTH] or None
    return FetchOutcome(page, links, feeds=walk.feeds)


def without_private(outcome: FetchOutcome, host: str, allowed: PrivateAllowList) -> FetchOutcome:
    """Leave out links to private hosts that `allow_private` lists and a page of this host must not lead to.

    MGMT's door refuses them too, but MGMT may not have this crawler's setting.
    """
    links = [link for link in outcome.links if may_follow(allowed, host, link)]
    left_out = len(outcome.links) - len(links)
    if left_out:
        words = f"{left_out:,} of its links lead to private hosts and were left out"
        reason = "; ".join(filter(None, [outcome.page.reason, words]))
        outcome.page.reason = reason[:MAX_REASON_LENGTH]
    return replace(outcome, links=links)


def may_follow(allowed: PrivateAllowList, host: str, link: str) -> bool:
    url = url_of(link)
    return isinstance(url, UrlRefusal) or may_lead(allowed, host, url.host)


def described(page: PageReport, answer: FetchResponse, now: datetime) -> PageReport:
    """What the answer says of the content, as far as it can be kept: anybody may write anything there."""
    page.content_type = bounded(answer.media_type, MAX_CONTENT_TYPE_LENGTH)
    page.content_length = len(answer.body)
    page.content_sha1 = sha1(answer.body, usedforsecurity=False).hexdigest()
    page.etag = bounded(answer.etag, MAX_ETAG_LENGTH)
    changed = answer.last_modified
    if changed is not None and changed.year >= FIRST_YEAR and changed <= now + MAX_CLOCK_SKEW:
        page.last_modified = changed
    return page


def bounded(text: str | None, most: int) -> str | None:
    return text if text and len(text) <= most and text.isprintable() else None


def aside(link: PageToFetch, walk: ParsedPage) -> str | None:
    """Where the page itself sends searchers: a canonical address on the same host, or a refresh."""
    here = url_of(link.link)
    for target in (walk.canonical, walk.refresh):
        there = parse(target) if target else None
        if isinstance(there, UrlRefusal) or isinstance(here, UrlRefusal) or there is None:
            continue
        if there.host == here.host and there.path != here.path:
            return str(there)
    return walk.refresh


def told(
    link: PageToFetch,
    answer: FetchResponse,
    result: Literal["success", "unchanged", "failure", "gone", "moved"],
    reason: str,
) -> PageReport:
    """What every answer says; the scheme only where it is not the one that was asked for."""
    asked = url_of(link.link)
    other = not isinstance(asked, UrlRefusal) and asked.scheme is not answer.url.scheme
    scheme: Literal["https", "http"] | None = None
    if other and answer.url.scheme in (Scheme.HTTPS, Scheme.HTTP):
        scheme = "https" if answer.url.scheme is Scheme.HTTPS else "http"
    return PageReport(
        link=link.link,
        result=result,
        status=answer.status,
        scheme=scheme,
        reason=reason[:MAX_REASON_LENGTH] or None,
    )


def same_page(url: Url, target: Url | None) -> bool:
    """Whether a redirect leads to the page itself by the other scheme: the guestbook has one row for both."""
    return (
        target is not None and (target.host, target.path) == (url.host, url.path) and target != url
    )


def is_itself(link: PageToFetch, target: Url) -> bool:
    here = url_of(link.link)
    return not isinstance(here, UrlRefusal) and (target.host, target.path) == (here.host, here.path)


def asks_for_pause(page: PageReport) -> bool:
    """Whether the host wants to be left alone for a while; MGMT sees to it for every crawler."""
    return page.status in RETRY_LATER_STATUSES or page.retry_after is not None


def is_no_response(page: PageReport) -> bool:
    """Whether the host said nothing at all, or would not say what it allows."""
    return page.result == "failure" and page.status is None
