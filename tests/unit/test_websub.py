"""The rules of WebSub: what is offered, when to ask, what is signed, when to poll."""

import hashlib
import hmac
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.feeds.model import Feed, FeedLink
from usher.feeds.poll.interval import MIN_PERIOD, NextPoll
from usher.feeds.websub import rules
from usher.feeds.websub.rules import HubOffer, HubSubscription

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OFFER = HubOffer("https://hub.example/", "https://a.example/feed")
ACTIVE = HubSubscription(
    OFFER.hub, OFFER.topic, "t", "s", "active", 0, NOW - HOUR, NOW + 9 * DAY, NOW + 7 * DAY, None,
    trusted=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('<https://h.example/>; rel="hub"', [("https://h.example/", "hub")]),
        ("<https://h.example/>;rel=hub", [("https://h.example/", "hub")]),
        ('</f>; rel="self alternate"', [("https://a.example/f", "self"), ("https://a.example/f", "alternate")]),
        ('<h>; title="a, b"; REL=Hub', [("https://a.example/h", "hub")]),
        ("<h>; rel=hub, <f>; rel=self", [("https://a.example/h", "hub"), ("https://a.example/f", "self")]),
        ('<h>; title="; rel=hub"; rel=x', [("https://a.example/h", "x")]),
        ("<h>", []),
        ("h; rel=hub", []),
        ("<http://[x>; rel=hub", []),
        ("<h>; rel=hub; rel=self", [("https://a.example/h", "hub")]),
        ("", []),
    ],
)  # fmt: skip
def test_link_headers_are_parsed(header: str, found: list[tuple[str, str]]) -> None:
    assert rules.parse_link_headers([header], "https://a.example/feed") == found


def test_headers_win_over_the_document() -> None:
    own = Feed(
        "atom10",
        "utf-8",
        links=(FeedLink("https://x/", "self"), FeedLink("https://s/")),
        hubs=("https://o/",),
    )
    assert rules.with_link_headers(own, [], "https://a.example/") is own
    both = rules.with_link_headers(
        own, ["<https://h/>; rel=hub, <https://n/>; rel=self"], "https://a.example/"
    )
    assert both.hubs == ("https://h/",)
    assert [(one.href, one.rel) for one in both.links] == [
        ("https://s/", "alternate"),
        ("https://n/", "self"),
    ]
    hub = rules.with_link_headers(own, ["<https://h/>; rel=hub"], "https://a.example/")
    assert hub.links == own.links


def test_hub_and_topic_of_a_feed() -> None:
    assert rules.hub_offer(OFFER.hub, OFFER.topic, "https://b.example/") == OFFER
    assert rules.hub_offer(OFFER.hub, "", "https://b.example/") == HubOffer(
        OFFER.hub, "https://b.example/"
    )
    for bad in (
        "",
        "x",
        "ftp://h/",
        "https://",
        "http://[x",
        "https://a b/",
        "https://h/" + "x" * 3000,
    ):
        assert rules.hub_offer(bad, OFFER.topic, "https://b.example/") is None


@pytest.mark.parametrize(
    ("standing", "offer", "wanted", "step"),
    [
        (None, None, True, "nothing"),
        (None, OFFER, True, "subscribe"),
        (None, OFFER, False, "nothing"),
        (ACTIVE, OFFER, True, "nothing"),
        (ACTIVE, OFFER, False, "unsubscribe"),
        (ACTIVE, None, True, "unsubscribe"),
        (replace(ACTIVE, renew_at=NOW), OFFER, True, "subscribe"),
        (replace(ACTIVE, renew_at=NOW, try_at=NOW + HOUR), OFFER, True, "nothing"),
        (replace(ACTIVE, hub="https://other.example/"), OFFER, True, "subscribe"),
        (replace(ACTIVE, state="asked"), OFFER, True, "subscribe"),
        (replace(ACTIVE, state="asked", try_at=NOW + HOUR), OFFER, True, "nothing"),
        (replace(ACTIVE, state="denied", try_at=NOW + HOUR), OFFER, True, "nothing"),
        (replace(ACTIVE, state="denied"), OFFER, True, "subscribe"),
        (replace(ACTIVE, state="denied"), None, True, "nothing"),
        (replace(ACTIVE, state="leaving"), OFFER, False, "nothing"),
        (replace(ACTIVE, state="left", try_at=NOW + HOUR), OFFER, True, "subscribe"),
    ],
)
def test_the_next_step(
    standing: HubSubscription | None, offer: HubOffer | None, *, wanted: bool, step: rules.HubStep
) -> None:
    assert rules.next_step(standing, offer, wanted=wanted, now=NOW) == step


def test_waits_double_up_to_a_day() -> None:
    assert [rules.retry_wait(n) / timedelta(minutes=1) for n in (0, 1, 2, 3)] == [10, 10, 20, 40]
    assert rules.retry_wait(10**6) == DAY


@pytest.mark.parametrize(
    ("said", "days"),
    [("864000", 10), ("", 10), ("x", 10), ("-5", 10), ("٣", 10), ("86400", 1), ("9" * 18, 365), ("0", 0)],
)  # fmt: skip
def test_leases(said: str, days: int) -> None:
    assert rules.parse_lease(said) == days * DAY
    assert rules.renewal_time(rules.parse_lease(said), NOW) >= NOW + rules.MIN_RENEWAL_WAIT


@pytest.mark.parametrize("method", sorted(rules.SIGNATURE_METHODS))
def test_signatures(method: str) -> None:
    made = hmac.new(b"secret", b"body", getattr(hashlib, method)).hexdigest()
    assert rules.is_signed("secret", f"{method}={made}", b"body")
    assert rules.is_signed("secret", f" {method.upper()}={made.upper()} ", b"body")
    for header, body in (
        (f"{method}={made}", b"body "),
        (f"{method}={made[:-1]}", b"body"),
        (f"{method}={made}0", b"body"),
        (made, b"body"),
        (f"md5={made}", b"body"),
        (f"{method}=", b"body"),
        ("", b"body"),
    ):
        assert not rules.is_signed("secret", header, body)
    assert not rules.is_signed("other", f"{method}={made}", b"body")


@given(st.text(), st.text(), st.binary())
def test_nothing_breaks_a_signature_or_a_header(header: str, other: str, body: bytes) -> None:
    assert not rules.is_signed("a long secret", header, body)
    assert not rules.is_signed("a long secret", f"sha256={other}", body)
    rules.parse_link_headers([header, f"<{other}>; rel={header}"], "https://a.example/")
    rules.is_usable_url(header)
    rules.parse_lease(header)


def test_the_request_form() -> None:
    sent = rules.request_form(
        "subscribe", OFFER, callback="https://us.example/websub/t", secret="s&s"
    )
    assert parse_qs(sent.decode()) == {
        "hub.callback": ["https://us.example/websub/t"],
        "hub.mode": ["subscribe"],
        "hub.topic": [OFFER.topic],
        "hub.lease_seconds": ["864000"],
        "hub.secret": ["s&s"],
    }
    assert (
        "hub.secret"
        not in rules.request_form("unsubscribe", OFFER, callback="x", secret="s").decode()
    )


def test_the_next_poll_of_a_feed_with_a_hub() -> None:
    soon, far = NextPoll(NOW + HOUR, HOUR, "so"), NextPoll(NOW + 3 * DAY, HOUR, "so")
    trusted = replace(ACTIVE, trusted=True, pinged_at=NOW - HOUR)

    def at(
        following: NextPoll, standing: HubSubscription | None, *, slower: bool = True
    ) -> timedelta:
        began = NOW - timedelta(seconds=5)
        return (
            rules.adjust_next_poll(following, standing, slower=slower, began=began, now=NOW).at
            - NOW
        )

    assert at(soon, None) == HOUR
    assert at(soon, ACTIVE) == HOUR
    assert at(soon, trusted) == rules.SAFETY_PERIOD
    assert at(far, trusted) == 3 * DAY
    assert at(soon, trusted, slower=False) == HOUR
    assert at(soon, replace(trusted, lease_until=NOW)) == HOUR
    assert at(soon, replace(trusted, state="denied")) == HOUR
    assert at(soon, replace(trusted, pinged_at=NOW)) == MIN_PERIOD
    assert at(far, replace(ACTIVE, renew_at=NOW + 2 * HOUR)) == 2 * HOUR
    assert at(far, replace(ACTIVE, renew_at=NOW - HOUR)) == MIN_PERIOD


def test_how_soon_news_are_polled_for() -> None:
    assert rules.poll_time_after_ping(None, NOW) == NOW
    assert rules.poll_time_after_ping(NOW - HOUR, NOW) == NOW
    assert rules.poll_time_after_ping(NOW, NOW) == NOW + MIN_PERIOD
