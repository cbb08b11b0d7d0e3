"""The rules of WebSub: what a feed offers, when to ask its hub, whether news are the hub's, what that does to the pace.

Comes from a feed, the server's headers and what is known of the subscription; goes to `hub_asking`, which asks, and to
polls, which come less often while a hub does as it says.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from urllib.parse import urlencode, urljoin, urlsplit

from msgspec.structs import replace

from usher.feeds.model import Feed, FeedLink
from usher.feeds.poll.interval import MIN_PERIOD, NextPoll

HubState = Literal["asked", "active", "denied", "leaving", "left"]
HubStep = Literal["subscribe", "unsubscribe", "nothing"]

REQUESTED_LEASE: Final = timedelta(days=10)  # asked for; the hub decides
MAX_LEASE: Final = timedelta(days=365)
MIN_RENEWAL_WAIT: Final = timedelta(
    minutes=10
)  # between two times that a hub is asked, whatever it says
FIRST_RETRY_WAIT, MAX_RETRY_WAIT = timedelta(minutes=10), timedelta(days=1)
DENIAL_WAIT: Final = timedelta(days=7)
SAFETY_PERIOD: Final = timedelta(
    hours=12
)  # a poll comes at least so often, however well a hub does
MAX_URL_CHARS: Final = 2_000
SIGNATURE_METHODS: Final = frozenset({"sha1", "sha256", "sha384", "sha512"})

_LINK: Final = re.compile(r"<([^<>]*)>((?:[^,<>\"]|\"(?:[^\"\\]|\\.)*\")*)")
_PART: Final = re.compile(r";\s*([\w*-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]+))")
_SECONDS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_SIGNED: Final = re.compile(r"(sha[0-9]{1,3})=([0-9a-f]{1,200})", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubOffer:
    """Whom to ask, and for what."""

    hub: str
    topic: str


@dataclass(frozen=True, slots=True)
class HubSubscription:
    """How a subscription at a hub stands."""

    hub: str
    topic: str
    token: str
    secret: str
    state: HubState
    errors: int
    try_at: datetime
    lease_until: datetime | None
    renew_at: datetime | None
    pinged_at: datetime | None
    trusted: bool

    @property
    def offer(self) -> HubOffer:
        return HubOffer(self.hub, self.topic)

    def live(self, now: datetime) -> bool:
        return self.state == "active" and self.lease_until is not None and self.lease_until > now


def with_link_headers(feed: Feed, headers: Sequence[str], url: str) -> Feed:
    """The feed with hub and self as the server's Link headers have them, which go before the document's own."""
    found = parse_link_headers(headers, url)
    hubs = tuple(href for href, rel in found if rel == "hub")
    selves = [href for href, rel in found if rel == "self"]
    if not hubs and not selves:
        return feed
    own = selves[0] if selves else feed.self_link
    others = tuple(one for one in feed.links if one.rel != "self" or not selves)
    added = (FeedLink(own, "self"),) if selves else ()
    return replace(feed, hubs=hubs or feed.hubs, self_link=own, links=others + added)


def parse_link_headers(headers: Sequence[str], url: str) -> list[tuple[str, str]]:
    """Each link of such headers with each of its relations."""
    found = []
    for header in headers:
        for href, rest in _LINK.findall(header[: 4 * MAX_URL_CHARS]):
            said = [
                quoted or bare
                for part, quoted, bare in _PART.findall(rest)
                if part.lower() == "rel"
            ]
            there = _joined(url, href)
            if said and there:  # a second one is not heard
                found += [(there, rel) for rel in said[0].lower().split()]
    return found


def hub_offer(hub: str, own: str, url: str) -> HubOffer | None:
    """What a feed offers: a hub, and what it is called there, which is the feed's own link or else where it is."""
    topic = own if is_usable_url(own) else url
    return HubOffer(hub, topic) if is_usable_url(hub) and is_usable_url(topic) else None


def is_usable_url(url: str) -> bool:
    if not url or len(url) > MAX_URL_CHARS or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def next_step(
    standing: HubSubscription | None, offer: HubOffer | None, *, wanted: bool, now: datetime
) -> HubStep:
    """What to do next; `wanted` is whether the feed is polled at all."""
    if offer is None or not wanted:
        there = standing is not None and standing.state in ("asked", "active")
        return "unsubscribe" if there else "nothing"
    if standing is None or standing.offer != offer or standing.state in ("leaving", "left"):
        return "subscribe"
    if standing.try_at > now:
        return "nothing"
    renewed = standing.renew_at is not None and standing.renew_at > now
    return "nothing" if standing.state == "active" and renewed else "subscribe"


def retry_wait(errors: int) -> timedelta:
    """How long to leave a hub alone that was asked so often in vain."""
    doubled: int = 1 << min(max(errors - 1, 0), 20)
    return min(FIRST_RETRY_WAIT * doubled, MAX_RETRY_WAIT)


def parse_lease(text: str) -> timedelta:
    """For how long the hub agreed; what it does not say well is what we asked for."""
    if not _SECONDS.fullmatch(text):
        return REQUESTED_LEASE
    return min(timedelta(seconds=min(int(text), 10**9)), MAX_LEASE)


def renewal_time(agreed: timedelta, now: datetime) -> datetime:
    """When to ask again: while a fifth of the time is left."""
    return now + max(agreed * 0.8, MIN_RENEWAL_WAIT)


def request_form(mode: str, offer: HubOffer, *, callback: str, secret: str) -> bytes:
    """What is sent to a hub."""
    said = {"hub.callback": callback, "hub.mode": mode, "hub.topic": offer.topic}
    if mode == "subscribe":
        said |= {
            "hub.lease_seconds": str(int(REQUESTED_LEASE.total_seconds())),
            "hub.secret": secret,
        }
    return urlencode(said).encode("ascii")


def is_signed(secret: str, header: str, body: bytes) -> bool:
    """Whether this body was signed with our secret, by any of the methods there are."""
    found = _SIGNED.fullmatch(header.strip().lower())
    if not found or found[1] not in SIGNATURE_METHODS:
        return False
    own = hmac.new(secret.encode(), body, getattr(hashlib, found[1])).hexdigest()
    return hmac.compare_digest(own, found[2])


def adjust_next_poll(
    following: NextPoll,
    standing: HubSubscription | None,
    *,
    slower: bool,
    began: datetime,
    now: datetime,
) -> NextPoll:
    """The next poll where a hub has its say: at once for news, less often while it can be trusted, in time to renew."""
    if standing is None or not standing.live(now):
        return following
    if standing.pinged_at is not None and standing.pinged_at >= began:
        return NextPoll(min(following.at, now + MIN_PERIOD), following.period, "Its hub has news.")
    if slower and standing.trusted and following.at < now + SAFETY_PERIOD:
        following = NextPoll(now + SAFETY_PERIOD, following.period, "Its hub tells us of news.")
    if standing.renew_at is not None and standing.renew_at < following.at:
        at = max(standing.renew_at, now + MIN_PERIOD)
        return NextPoll(at, following.period, "Its hub wants to be asked again.")
    return following


def poll_time_after_ping(polled_at: datetime | None, now: datetime) -> datetime:
    """When to poll a feed of which there is news: now, but no sooner after the last poll than ever."""
    return now if polled_at is None else max(now, polled_at + MIN_PERIOD)


def _joined(url: str, href: str) -> str:
    try:
        return urljoin(url, href.strip())
    except ValueError:
        return ""
