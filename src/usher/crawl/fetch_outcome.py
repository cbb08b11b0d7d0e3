"""What a response means for its page: success, unchanged, moved, gone, failure or barred; and the links to report."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha1
from http import HTTPStatus
from typing import Final, Literal

from usher.anchor_text import Anchor
from usher.crawl.http.response import REDIRECT_STATUSES, FetchResponse
from usher.crawl.page.parse import ParsedPage
from usher.messages.crawler import PageReport, PageToFetch
from usher.private_hosts import AllowList, may_lead
from usher.urls import Scheme, Url, UrlRefusal, parse

GONE_STATUSES: Final = frozenset({404, 410})
PERMANENT_REDIRECT_STATUSES: Final = frozenset({301, 308})
RETRY_LATER_STATUSES: Final = frozenset({429, 503})
MAX_REASON_LENGTH: Final = 1_000
MAX_RETRY_AFTER_SECONDS: Final = 86_400.0
MAX_ETAG_LENGTH: Final = 1_000
MAX_CONTENT_TYPE_LENGTH: Final = 200
FIRST_YEAR: Final = 1990  # of the web
MAX_CLOCK_SKEW: Final = timedelta(days=1)  # of a server


@lru_cache(maxsize=4_096)  # several functions need the URL of the same page
def url_of(link: str) -> Url | UrlRefusal:
    return parse(link)


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """A page's result, the links to send to the door, where it moved to, the feeds that it names, and anchor texts."""

    page: PageReport
    links: Sequence[str] = ()
    moved_to: Url | None = None
    feeds: Sequence[str] = field(default_factory=list)
    anchors: Sequence[Anchor] = ()


def barred_outcome(link: PageToFetch, rule: str) -> FetchOutcome:
    return FetchOutcome(PageReport(link=link.link, result="barred", reason=f"robots.txt: {rule}"))


def failed_outcome(link: PageToFetch, reason: str) -> FetchOutcome:
    """Return the outcome of a page without a response."""
    return FetchOutcome(
        PageReport(link=link.link, result="failure", reason=reason[:MAX_REASON_LENGTH])
    )


def outcome_of(
    link: PageToFetch, response: FetchResponse, parsed: ParsedPage | None, *, now: datetime
) -> FetchOutcome:
    """Return what a response means; `parsed` is its content, None without any."""
    status = response.status
    is_cut_page = response.kind == "body" and parsed is not None
    if status is None or (response.error and not is_cut_page):
        return _failure(link, response, response.error or "no response", now)
    if status == HTTPStatus.NOT_MODIFIED and (link.etag or link.last_modified):
        return FetchOutcome(_page(link, response, "unchanged", ""))
    if status in REDIRECT_STATUSES:
        return _redirected(link, response, status)
    if status in GONE_STATUSES:
        return FetchOutcome(_page(link, response, "gone", f"HTTP {status}"))
    if parsed is None or status // 100 != 2:  # noqa: PLR2004 - success
        return _failure(link, response, f"HTTP {status}", now)
    return _fetched(link, response, parsed, now)


def _failure(
    link: PageToFetch, response: FetchResponse, reason: str, now: datetime
) -> FetchOutcome:
    page = _page(link, response, "failure", reason)
    retry_after = response.retry_after(now)
    if retry_after is not None:
        page.retry_after = min(max(retry_after, 0.0), MAX_RETRY_AFTER_SECONDS)
    return FetchOutcome(page)


def _redirected(link: PageToFetch, response: FetchResponse, status: int) -> FetchOutcome:
    """Return the outcome of a redirect; the door judges its target as a page of its own."""
    target, here = response.location, url_of(link.link)
    if target is None:
        return FetchOutcome(_page(link, response, "failure", f"HTTP {status} without a target"))
    if isinstance(here, Url) and (target.host, target.path) == (here.host, here.path):
        return FetchOutcome(_page(link, response, "failure", f"HTTP {status} to the page itself"))
    kind = "permanent" if status in PERMANENT_REDIRECT_STATUSES else "temporary"
    page = _page(link, response, "moved", f"HTTP {status}, {kind} redirect to {target}")
    return FetchOutcome(page, [str(target)], target)


def _fetched(
    link: PageToFetch, response: FetchResponse, parsed: ParsedPage, now: datetime
) -> FetchOutcome:
    same = link.text64 is not None and link.text64 == str(parsed.text64) and not parsed.noindex
    page = _page(link, response, "unchanged" if same else "success", "")
    _describe_content(page, response, now)
    page.text64 = str(parsed.text64) if parsed.text64 else None
    links = list(parsed.links)
    canonical = _other_canonical(link, parsed)
    page.noindex = parsed.noindex or bool(canonical)
    if canonical:
        page.result = "success"
        links.append(canonical)
    reasons = [
        "forbids indexing (noindex)" if parsed.noindex else "",
        f"its canonical page is {canonical}" if canonical else "",
        response.error,
        f"{parsed.dropped:,} links exceed the limit" if parsed.dropped else "",
        parsed.problem,
    ]
    page.reason = "; ".join(filter(None, reasons))[:MAX_REASON_LENGTH] or None
    # A page with another canonical page repeats the links of that one.
    anchors = () if canonical else parsed.anchors
    return FetchOutcome(page, links, feeds=parsed.feeds, anchors=anchors)


def without_private(outcome: FetchOutcome, host: str, allowed: AllowList) -> FetchOutcome:
    """Leave out links to private hosts of `allow_private` that a page of this host must not link to.

    MGMT's door refuses them too, but MGMT may not have this crawler's setting.
    """
    links = [link for link in outcome.links if may_follow(allowed, host, link)]
    dropped = len(outcome.links) - len(links)
    if dropped:
        words = f"links to private hosts left out: {dropped:,}"
        reason = "; ".join(filter(None, [outcome.page.reason, words]))
        outcome.page.reason = reason[:MAX_REASON_LENGTH]
        followed = frozenset(links)
        anchors = [anchor for anchor in outcome.anchors if anchor.link in followed]
        outcome = replace(outcome, links=links, anchors=anchors)
    return outcome


def may_follow(allowed: AllowList, host: str, link: str) -> bool:
    url = url_of(link)
    return isinstance(url, UrlRefusal) or may_lead(allowed, host, url.host)


def _describe_content(page: PageReport, response: FetchResponse, now: datetime) -> None:
    """Copy what the headers say about the content; implausible values are left out."""
    page.content_type = _bounded(response.media_type, MAX_CONTENT_TYPE_LENGTH)
    page.content_length = len(response.body)
    page.content_sha1 = sha1(response.body, usedforsecurity=False).hexdigest()
    page.etag = _bounded(response.etag, MAX_ETAG_LENGTH)
    changed = response.last_modified
    if changed is not None and changed.year >= FIRST_YEAR and changed <= now + MAX_CLOCK_SKEW:
        page.last_modified = changed


def _bounded(text: str | None, max_length: int) -> str | None:
    return text if text and len(text) <= max_length and text.isprintable() else None


def _other_canonical(link: PageToFetch, parsed: ParsedPage) -> str | None:
    """Return the page to index instead of this one: a canonical URL on the same host, or a refresh."""
    here = url_of(link.link)
    for target in (parsed.canonical, parsed.refresh):
        there = parse(target) if target else None
        if not isinstance(there, Url) or not isinstance(here, Url):
            continue
        if there.host == here.host and there.path != here.path:
            return str(there)
    return parsed.refresh


def _page(
    link: PageToFetch,
    response: FetchResponse,
    result: Literal["success", "unchanged", "failure", "gone", "moved"],
    reason: str,
) -> PageReport:
    """Return the fields that every response has; the scheme only if it is not the one of the link."""
    url = url_of(link.link)
    scheme: Literal["https", "http"] | None = None
    if isinstance(url, Url) and url.scheme is not response.url.scheme:
        scheme = "https" if response.url.scheme is Scheme.HTTPS else "http"
    return PageReport(
        link=link.link,
        result=result,
        status=response.status,
        scheme=scheme,
        reason=reason[:MAX_REASON_LENGTH] or None,
    )


def same_page(url: Url, target: Url) -> bool:
    """Return whether a redirect leads to the same page by the other scheme: the guestbook has one row for both."""
    return (target.host, target.path) == (url.host, url.path) and target != url


def asks_for_pause(page: PageReport) -> bool:
    """Return whether the host asks for a pause; MGMT enforces it for every crawler."""
    return page.status in RETRY_LATER_STATUSES or page.retry_after is not None


def is_no_response(page: PageReport) -> bool:
    """Return whether the host did not answer, or its robots.txt could not be read."""
    return page.result == "failure" and page.status is None
