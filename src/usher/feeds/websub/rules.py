"""The rules of WebSub: when to subscribe at a hub, how to check signatures, how a hub changes the next poll. Pure."""

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

REQUESTED_LEASE: Final = timedelta(days=10)  # the hub may grant another
MAX_LEASE: Final = timedelta(days=365)
MIN_RENEWAL_WAIT: Final = timedelta(minutes=10)
FIRST_RETRY_WAIT, MAX_RETRY_WAIT = timedelta(minutes=10), timedelta(days=1)
DENIAL_WAIT: Final = timedelta(days=7)
SAFETY_PERIOD: Final = timedelta(hours=12)  # between polls of a feed with a trusted hub
MAX_URL_CHARS: Final = 2_000
SIGNATURE_METHODS: Final = frozenset({"sha1", "sha256", "sha384", "sha512"})

_LINK: Final = re.compile(r"<([^<>]*)>((?:[^,<>\"]|\"(?:[^\"\\]|\\.)*\")*)")
_PART: Final = re.compile(r";\s*([\w*-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]+))")
_SECONDS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_SIGNED: Final = re.compile(r"(sha[0-9]{1,3})=([0-9a-f]{1,200})", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubOffer:
    """The hub of a feed and the topic to subscribe to."""

    hub: str
    topic: str


@dataclass(frozen=True, slots=True)
class HubSubscription:
    """The state of a subscription at a hub."""

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
    """The feed with hub and self link from the server's Link headers, which win over the document."""
    pairs = parse_link_headers(headers, url)
    hubs = tuple(href for href, rel in pairs if rel == "hub") or feed.hubs
    self_link = next((href for href, rel in pairs if rel == "self"), "")
    if not self_link:
        return replace(feed, hubs=hubs) if hubs != feed.hubs else feed
    others = tuple(link for link in feed.links if link.rel != "self")
    links = (*others, FeedLink(self_link, "self"))
    return replace(feed, hubs=hubs, self_link=self_link, links=links)


def parse_link_headers(headers: Sequence[str], url: str) -> list[tuple[str, str]]:
    """The absolute URL and the relation of each link in Link headers."""
    pairs = []
    for header in headers:
        for href, rest in _LINK.findall(header[: 4 * MAX_URL_CHARS]):
            rels = [
                quoted or bare
                for part, quoted, bare in _PART.findall(rest)
                if part.lower() == "rel"
            ]
            target = _joined(url, href)
            if rels and target:  # only the first rel of a link counts
                pairs += [(target, rel) for rel in rels[0].lower().split()]
    return pairs


def hub_offer(hub: str, self_link: str, url: str) -> HubOffer | None:
    """The hub of a feed and the topic, which is its self link or else its URL; None if it has no hub."""
    topic = self_link if is_usable_url(self_link) else url
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
    current: HubSubscription | None, offer: HubOffer | None, *, wanted: bool, now: datetime
) -> HubStep:
    """The next request to the hub; `wanted` if the feed is polled at all."""
    if offer is None or not wanted:
        subscribed = current is not None and current.state in ("asked", "active")
        return "unsubscribe" if subscribed else "nothing"
    if current is None or current.offer != offer or current.state in ("leaving", "left"):
        return "subscribe"
    if current.try_at > now:
        return "nothing"
    renewed = current.renew_at is not None and current.renew_at > now
    return "nothing" if current.state == "active" and renewed else "subscribe"


def retry_wait(errors: int) -> timedelta:
    """The wait after this number of failed requests."""
    doubled: int = 1 << min(max(errors - 1, 0), 20)
    return min(FIRST_RETRY_WAIT * doubled, MAX_RETRY_WAIT)


def parse_lease(text: str) -> timedelta:
    """The lease that a hub granted; the requested one if it is not a number."""
    if not _SECONDS.fullmatch(text):
        return REQUESTED_LEASE
    return min(timedelta(seconds=min(int(text), 10**9)), MAX_LEASE)


def renewal_time(agreed: timedelta, now: datetime) -> datetime:
    """When to renew: after four fifths of the lease."""
    return now + max(agreed * 0.8, MIN_RENEWAL_WAIT)


def request_form(mode: str, offer: HubOffer, *, callback: str, secret: str) -> bytes:
    """The body of a request to a hub."""
    fields = {"hub.callback": callback, "hub.mode": mode, "hub.topic": offer.topic}
    if mode == "subscribe":
        fields |= {
            "hub.lease_seconds": str(int(REQUESTED_LEASE.total_seconds())),
            "hub.secret": secret,
        }
    return urlencode(fields).encode("ascii")


def is_signed(secret: str, header: str, body: bytes) -> bool:
    """Whether the header has the signature of this body with our secret."""
    match = _SIGNED.fullmatch(header.strip().lower())
    if not match or match[1] not in SIGNATURE_METHODS:
        return False
    expected = hmac.new(secret.encode(), body, getattr(hashlib, match[1])).hexdigest()
    return hmac.compare_digest(expected, match[2])


def adjust_next_poll(
    following: NextPoll,
    current: HubSubscription | None,
    *,
    slower: bool,
    began: datetime,
    now: datetime,
) -> NextPoll:
    """The next poll of a feed with a hub: soon after news, rarer while the hub is trusted, in time to renew.

    `slower` allows longer periods. `began` is when the last poll began.
    """
    if current is None or not current.live(now):
        return following
    if current.pinged_at is not None and current.pinged_at >= began:
        return NextPoll(min(following.at, now + MIN_PERIOD), following.period, "Its hub has news.")
    if slower and current.trusted and following.at < now + SAFETY_PERIOD:
        following = NextPoll(now + SAFETY_PERIOD, following.period, "Its hub announces news.")
    if current.renew_at is not None and current.renew_at < following.at:
        at = max(current.renew_at, now + MIN_PERIOD)
        return NextPoll(at, following.period, "The subscription at its hub must be renewed.")
    return following


def poll_time_after_ping(polled_at: datetime | None, now: datetime) -> datetime:
    """When to poll a feed with news: now, but not sooner after the last poll than MIN_PERIOD."""
    return now if polled_at is None else max(now, polled_at + MIN_PERIOD)


def _joined(url: str, href: str) -> str:
    try:
        return urljoin(url, href.strip())
    except ValueError:
        return ""
