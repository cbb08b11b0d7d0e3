"""Finding the feed at an address: the address itself, or what the page there offers.

Comes from a person; goes to the web, and back as a subscription to be.
"""

from datetime import UTC, datetime
from typing import Final

from usher.crawl.http.fetch import Fetcher
from usher.errors import NotFound, Unreachable
from usher.feeds.model import Feed
from usher.feeds.opml import Subscription
from usher.feeds.parse.parser import parse
from usher.feeds.poll.discover import candidates
from usher.feeds.poll.request import FetchResult, fetch_feed
from usher.urls import Refused, Url
from usher.urls import parse as parse_url

MAX_CANDIDATES_TRIED: Final = 12


async def find_feed(fetcher: Fetcher, url: Url) -> Subscription:
    """The feed at a URL, or the first that its page offers and that is one."""
    reached = await fetch_feed(fetcher, url)
    if found := as_subscription(reached):
        return found
    answer = reached.answer
    if answer.status is None:
        raise Unreachable(
            f"{url} gives no answer: {answer.error}.", hint="--no-check subscribes without asking."
        )
    for one in candidates(answer.body, str(answer.url))[:MAX_CANDIDATES_TRIED]:
        there = parse_url(one.url)
        if isinstance(there, Refused):
            continue
        if found := as_subscription(await fetch_feed(fetcher, there, source=answer.url)):
            return found
    raise NotFound(
        f"There is no feed at {url}, and its page offers none.",
        hint="--no-check subscribes nevertheless.",
    )


def as_subscription(reached: FetchResult) -> Subscription | None:
    """What an answer is subscribed to as, if it is a feed."""
    answer = reached.answer
    if answer.status is None or answer.status // 100 != 2 or reached.error or answer.error:  # noqa: PLR2004
        return None
    said = answer.first("content-type")
    feed = parse(answer.body, url=str(answer.url), content_type=said, now=datetime.now(UTC))
    return Subscription(str(reached.home), "", feed.link) if isinstance(feed, Feed) else None
