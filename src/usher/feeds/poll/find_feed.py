"""Finds the feed at an address: the address itself, or a feed that the page there links to."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from usher.crawl.http.fetch import Fetcher
from usher.errors import NotFound, Unreachable
from usher.feeds.model import Feed
from usher.feeds.opml import Subscription
from usher.feeds.parse.parser import parse
from usher.feeds.poll.discover import candidates
from usher.feeds.poll.request import FetchResult, PermissionLookup, fetch_feed
from usher.urls import Url, UrlRefusal
from usher.urls import parse as parse_url

MAX_CANDIDATES_TRIED: Final = 12
UNSENT_KINDS: Final = frozenset({"private", "port", "own", "scheme"})  # Usher refuses to connect


@dataclass(frozen=True, slots=True)
class LocatedFeed:
    """A working feed; `guessed` if its page does not name it, and it is at a common path."""

    subscription: Subscription
    guessed: bool = False


async def find_feed(fetcher: Fetcher, url: Url, permission: PermissionLookup) -> LocatedFeed:
    """The feed at a URL, else the first working feed of its page; Unreachable or NotFound if there is none."""
    result = await fetch_feed(fetcher, url, permission)
    if subscription := as_subscription(result):
        return LocatedFeed(subscription)
    answer = result.answer
    if answer.status is None:
        hint = "--no-check subscribes without a request."
        problem = "was not requested" if answer.kind in UNSENT_KINDS else "does not answer"
        raise Unreachable(f"{url} {problem}: {answer.error}.", hint=hint)
    for candidate in candidates(answer.body, str(answer.url))[:MAX_CANDIDATES_TRIED]:
        candidate_url = parse_url(candidate.url)
        if isinstance(candidate_url, UrlRefusal):
            continue
        result = await fetch_feed(fetcher, candidate_url, permission, source=answer.url)
        if subscription := as_subscription(result):
            return LocatedFeed(subscription, guessed=candidate.why == "guessed")
    raise NotFound(
        f"There is no feed at {url}, and its page links to none.",
        hint="--no-check subscribes anyway.",
    )


def as_subscription(result: FetchResult) -> Subscription | None:
    """The subscription to a fetched feed; None if the response is no feed."""
    answer = result.answer
    if answer.status is None or answer.status // 100 != 2 or result.error or answer.error:  # noqa: PLR2004
        return None
    content_type = answer.first("content-type")
    feed = parse(answer.body, url=str(answer.url), content_type=content_type, now=datetime.now(UTC))
    return Subscription(str(result.url), "", feed.link) if isinstance(feed, Feed) else None
