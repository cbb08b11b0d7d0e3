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

from usher.feeds.model import Feed, Link
from usher.feeds.poll.interval import LEAST, Next

State = Literal["asked", "active", "denied", "leaving", "left"]
Step = Literal["subscribe", "unsubscribe", "nothing"]

LEASE: Final = timedelta(days=10)  # asked for; the hub decides
LONGEST_LEASE: Final = timedelta(days=365)
SOONEST: Final = timedelta(minutes=10)  # between two times that a hub is asked, whatever it says
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=10), timedelta(days=1)
AFTER_DENIAL: Final = timedelta(days=7)
SAFETY: Final = timedelta(hours=12)  # a poll comes at least so often, however well a hub does
LONGEST_URL: Final = 2_000
METHODS: Final = frozenset({"sha1", "sha256", "sha384", "sha512"})

_LINK: Final = re.compile(r"<([^<>]*)>((?:[^,<>\"]|\"(?:[^\"\\]|\\.)*\")*)")
_PART: Final = re.compile(r";\s*([\w*-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]+))")
_SECONDS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_SIGNED: Final = re.compile(r"(sha[0-9]{1,3})=([0-9a-f]{1,200})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Offer:
    """Whom to ask, and for what."""

    hub: str
    topic: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How a subscription at a hub stands."""

    hub: str
    topic: str
    token: str
    secret: str
    state: State
    errors: int
    try_at: datetime
    lease_until: datetime | None
    renew_at: datetime | None
    pinged_at: datetime | None
    trusted: bool

    @property
    def offer(self) -> Offer:
        return Offer(self.hub, self.topic)

    def live(self, now: datetime) -> bool:
        return self.state == "active" and self.lease_until is not None and self.lease_until > now


def heard(feed: Feed, headers: Sequence[str], url: str) -> Feed:
    """The feed with hub and self as the server's Link headers have them, which go before the document's own."""
    found = links(headers, url)
    hubs = tuple(href for href, rel in found if rel == "hub")
    selves = [href for href, rel in found if rel == "self"]
    if not hubs and not selves:
        return feed
    own = selves[0] if selves else feed.self_link
    others = tuple(one for one in feed.links if one.rel != "self" or not selves)
    added = (Link(own, "self"),) if selves else ()
    return replace(feed, hubs=hubs or feed.hubs, self_link=own, links=others + added)


def links(headers: Sequence[str], url: str) -> list[tuple[str, str]]:
    """Each link of such headers with each of its relations."""
    found = []
    for header in headers:
        for href, rest in _LINK.findall(header[: 4 * LONGEST_URL]):
            said = [
                quoted or bare
                for part, quoted, bare in _PART.findall(rest)
                if part.lower() == "rel"
            ]
            there = _joined(url, href)
            if said and there:  # a second one is not heard
                found += [(there, rel) for rel in said[0].lower().split()]
    return found


def offered(hub: str, own: str, url: str) -> Offer | None:
    """What a feed offers: a hub, and what it is called there, which is the feed's own link or else where it is."""
    topic = own if usable(own) else url
    return Offer(hub, topic) if usable(hub) and usable(topic) else None


def usable(url: str) -> bool:
    if not url or len(url) > LONGEST_URL or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def step(standing: Standing | None, offer: Offer | None, *, wanted: bool, now: datetime) -> Step:
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


def wait(errors: int) -> timedelta:
    """How long to leave a hub alone that was asked so often in vain."""
    doubled: int = 1 << min(max(errors - 1, 0), 20)
    return min(FIRST_WAIT * doubled, LONGEST_WAIT)


def lease(text: str) -> timedelta:
    """For how long the hub agreed; what it does not say well is what we asked for."""
    if not _SECONDS.fullmatch(text):
        return LEASE
    return min(timedelta(seconds=min(int(text), 10**9)), LONGEST_LEASE)


def renewal(agreed: timedelta, now: datetime) -> datetime:
    """When to ask again: while a fifth of the time is left."""
    return now + max(agreed * 0.8, SOONEST)


def form(mode: str, offer: Offer, *, callback: str, secret: str) -> bytes:
    """What is sent to a hub."""
    said = {"hub.callback": callback, "hub.mode": mode, "hub.topic": offer.topic}
    if mode == "subscribe":
        said |= {"hub.lease_seconds": str(int(LEASE.total_seconds())), "hub.secret": secret}
    return urlencode(said).encode("ascii")


def signed(secret: str, header: str, body: bytes) -> bool:
    """Whether this body was signed with our secret, by any of the methods there are."""
    found = _SIGNED.fullmatch(header.strip().lower())
    if not found or found[1] not in METHODS:
        return False
    own = hmac.new(secret.encode(), body, getattr(hashlib, found[1])).hexdigest()
    return hmac.compare_digest(own, found[2])


def paced(
    following: Next, standing: Standing | None, *, slower: bool, began: datetime, now: datetime
) -> Next:
    """The next poll where a hub has its say: at once for news, less often while it can be trusted, in time to renew."""
    if standing is None or not standing.live(now):
        return following
    if standing.pinged_at is not None and standing.pinged_at >= began:
        return Next(min(following.at, now + LEAST), following.period, "Its hub has news.")
    if slower and standing.trusted and following.at < now + SAFETY:
        following = Next(now + SAFETY, following.period, "Its hub tells us of news.")
    if standing.renew_at is not None and standing.renew_at < following.at:
        at = max(standing.renew_at, now + LEAST)
        return Next(at, following.period, "Its hub wants to be asked again.")
    return following


def hastened(polled_at: datetime | None, now: datetime) -> datetime:
    """When to poll a feed of which there is news: now, but no sooner after the last poll than ever."""
    return now if polled_at is None else max(now, polled_at + LEAST)


def _joined(url: str, href: str) -> str:
    try:
        return urljoin(url, href.strip())
    except ValueError:
        return ""
