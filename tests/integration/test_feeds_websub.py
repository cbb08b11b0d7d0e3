"""WebSub with a real hub and a real MGMT: subscription, verification, news, renewal, end, refusals."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from support.db.fixtures import Server, clone
from support.feeds.hub import Hub, request
from support.feeds.hub_feed import HOUR, Room, atom, opened
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.site.website import Response, Website
from usher.db.pool import Database, connect
from usher.feeds.store import subscriptions
from usher.feeds.websub import rules, subscribe

DAY = timedelta(days=1)
STATE = "select state, reason, errors, pings, ignored, trusted from feeds.websub"


@pytest.fixture(scope="module")
async def served(
    migrated: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, Mgmt]]:
    """One database and one MGMT for all tests of this file."""
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        with mgmt(dsn, tmp_path_factory.mktemp("mgmt") / "log") as running:
            yield dsn, running


@pytest.fixture
async def setup(served: tuple[str, Mgmt], site: Website) -> AsyncIterator[Room]:
    dsn, running = served
    async with await connect(dsn) as conn:
        await conn.execute("truncate feeds.feed_metadata, feeds.feed, control.task cascade")
    async with opened(dsn, running.address) as (databases, fetcher), Hub() as hub:
        yield Room(databases, fetcher, site, hub)


async def test_a_subscription_is_requested_and_confirmed(setup: Room) -> None:
    id_ = await setup.add("a")
    told = await setup.poll(id_)
    assert (told.kind, told.problems) == ("fresh", [])
    [form] = setup.hub.asked
    assert form["hub.mode"] == "subscribe"
    assert form["hub.topic"] == "https://topic.example/feed"
    assert form["hub.lease_seconds"] == "864000"
    assert len(form["hub.secret"]) == 64
    assert len(form["hub.callback"].rpartition("/")[2]) >= 32
    [answer] = setup.hub.told
    assert (answer.status, answer.body) == (200, b"echo <this> & so on")
    assert await setup.ask(STATE) == [("active", "", 0, 0, 0, False)]
    [(left, again)] = await setup.ask(
        "select lease_until - now(), renew_at < lease_until from feeds.websub"
    )
    assert isinstance(left, timedelta)
    assert 9 * DAY < left <= 10 * DAY
    assert again
    await setup.poll(id_, HOUR)
    assert len(setup.hub.asked) == 1


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
async def test_news_make_the_feed_due(setup: Room, method: str) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    await setup.run("update feeds.feed_poll set polled_at = now() - interval '1 hour'")
    [(far,)] = await setup.ask("select next_run > now() + interval '10 min' from control.task")
    assert far
    assert (await setup.hub.publish(b"<feed/>", method=method)).status == 200
    due = "select next_run <= now() from control.task"
    assert await setup.ask(due) == [(True,)]
    why = "select next_at <= now(), why from feeds.feed_poll"
    assert await setup.ask(why) == [(True, "Its hub has news.")]
    assert await setup.ask(STATE) == [("active", "", 0, 1, 0, True)]


@pytest.mark.parametrize(
    "signature", ["", "sha256=", "sha256=" + "0" * 64, "md5=0", "sha256", "\xff=1", "sha1=" + "é"]
)
async def test_deliveries_without_a_valid_signature_are_ignored(
    setup: Room, signature: str
) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    before = await setup.ask("select next_run from control.task")
    told = await setup.hub.publish(b"<feed/>", signature=signature)
    assert told.status == 200
    assert await setup.ask("select next_run from control.task") == before
    assert await setup.ask(STATE) == [("active", "", 0, 0, 1, False)]


async def test_a_signature_of_another_body_is_not_valid(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    form, made = setup.hub.asked[0], "sha1=" + "0" * 40
    for body in (b"", b"x" * 100_000):
        told = await request("POST", form["hub.callback"], body, {"X-Hub-Signature": made})
        assert told.status == 200
    assert await setup.ask(STATE) == [("active", "", 0, 0, 2, False)]


async def test_news_do_not_exceed_the_minimum_period(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    for _ in range(3):
        await setup.hub.publish(b"<feed/>")
    [(soon, late)] = await setup.ask(
        "select t.next_run >= p.polled_at + interval '59 s', t.next_run <= p.polled_at + interval '61 s'"
        " from control.task t, feeds.feed_poll p"
    )
    assert (soon, late) == (True, True)
    await setup.run("update feeds.feed_poll set status = 429")
    await setup.run("update control.task set next_run = now() + interval '2 h'")
    await setup.hub.publish(b"<feed/>")
    assert await setup.ask("select next_run > now() + interval '1 h' from control.task") == [
        (True,)
    ]


async def test_callbacks_without_a_request_are_not_found(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    callback, topic = setup.hub.asked[0]["hub.callback"], setup.hub.asked[0]["hub.topic"]
    good = {"hub.mode": "subscribe", "hub.topic": topic, "hub.challenge": "c"}
    assert (await setup.hub.call(callback, good)).status == 200
    for said in (
        {**good, "hub.topic": "https://topic.example/other"},
        {**good, "hub.mode": "unsubscribe"},
        {**good, "hub.topic": ""},
    ):
        assert (await setup.hub.call(callback, said)).status == 404
    for said in ({**good, "hub.mode": "steal"}, {**good, "hub.challenge": ""}, {}):
        assert (await setup.hub.call(callback, said)).status == 422
    for token in ("x" * 43, "%00", "%ff", "y" * 5000):
        there = f"{callback.rpartition('/')[0]}/{token}"
        assert (await setup.hub.call(there, good)).status == 404
        assert (await request("POST", there, b"x")).status == 404
    assert await setup.ask(STATE) == [("active", "", 0, 0, 0, False)]


async def test_the_size_of_a_delivery_is_limited(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    told = await request("POST", setup.hub.asked[0]["hub.callback"], b"x" * 10_000_001)
    assert told.status == 413


async def test_a_denied_subscription_is_requested_again_much_later(setup: Room) -> None:
    setup.hub.verifies = False
    id_ = await setup.add("a")
    await setup.poll(id_)
    form = setup.hub.asked[0]
    said = {"hub.mode": "denied", "hub.topic": form["hub.topic"], "hub.reason": "not you\x1b[31m"}
    assert (await setup.hub.call(form["hub.callback"], said)).status == 200
    assert (await setup.ask(STATE))[0][:2] == ("denied", "not you\x1b[31m")
    assert (await request("POST", form["hub.callback"], b"x")).status == 410
    await setup.poll(id_, DAY)
    assert len(setup.hub.asked) == 1
    setup.hub.verifies = True
    await setup.poll(id_, 7 * DAY)
    assert len(setup.hub.asked) == 2
    assert (await setup.ask(STATE))[0][0] == "active"


async def test_requests_to_a_failing_hub_become_rarer(setup: Room) -> None:
    setup.hub.status = 500
    id_ = await setup.add("a")
    told = await setup.poll(id_)
    assert told.kind == "fresh"
    assert told.problems == ["Could not subscribe at its hub: HTTP 500 So: no"]
    assert (await setup.ask(STATE))[0][:3] == ("asked", "HTTP 500 So: no", 1)
    for wait, asked in ((5, 1), (6, 2), (11, 2), (11, 3), (30, 3), (11, 4)):
        await setup.poll(id_, timedelta(minutes=wait))
        assert len(setup.hub.asked) == asked
    setup.hub.status, setup.hub.headers = 503, "Retry-After: 172800\r\n"
    await setup.poll(id_, DAY)
    await setup.poll(id_, DAY)
    assert len(setup.hub.asked) == 5
    setup.hub.status = 202
    await setup.poll(id_, DAY)
    assert (await setup.ask(STATE))[0][:3] == ("active", "", 0)
    assert len({one["hub.callback"] for one in setup.hub.asked}) == 1


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://10.1.2.3/hub", "the private host 10.1.2.3"),
        ("http://169.254.169.254/latest", "the private host 169.254.169.254"),
        ("http://127.0.0.1:6379/", "port 6379"),
        ("http://[::1]/hub", "the private host [::1]"),
    ],
)
async def test_a_hub_leads_to_no_private_address(setup: Room, address: str, words: str) -> None:
    id_ = await setup.add("a", hub=address)
    told = await setup.poll(id_)
    assert told.kind == "fresh"
    assert words in told.problems[0]


@pytest.mark.parametrize("address", ["file:///etc/passwd", "javascript:x", "mailto:a@b.c"])
async def test_an_invalid_hub_gets_no_request(setup: Room, address: str) -> None:
    id_ = await setup.add("a", hub=address)
    assert (await setup.poll(id_)).problems == []
    assert await setup.ask(STATE) == []


async def test_redirects_of_a_hub_are_followed_but_not_in_loops(setup: Room) -> None:
    async with Hub(status=307) as old:
        old.headers = f"Location: {setup.hub.url}\r\n"
        id_ = await setup.add("a", hub=old.url)
        assert (await setup.poll(id_)).problems == []
        assert old.asked == setup.hub.asked
        assert (await setup.ask(STATE))[0][0] == "active"
        old.headers = f"Location: {old.url}\r\n"
        await setup.run("update feeds.websub set renew_at = now() - interval '1 h'")
        assert "HTTP 307" in (await setup.poll(id_, HOUR)).problems[0]
        assert len(old.asked) == 4


async def test_renewed_before_it_ends(setup: Room) -> None:
    setup.hub.lease = "3600"
    id_ = await setup.add("a")
    await setup.poll(id_)
    told = await setup.poll(id_, timedelta(minutes=5))
    assert told.next_at is not None
    assert told.next_at - setup.now < timedelta(minutes=48)
    assert told.why == "The subscription at its hub must be renewed."
    assert len(setup.hub.asked) == 1
    await setup.run("update feeds.websub set lease_until = now() + interval '2 h'")
    await setup.poll(id_, timedelta(minutes=48))
    assert len(setup.hub.asked) == 2
    assert setup.hub.asked[0] == setup.hub.asked[1]
    assert (await setup.ask(STATE))[0][0] == "active"


async def test_a_hub_is_trusted_while_it_announces_all_news(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    told = await setup.poll(id_, HOUR)
    assert told.why != "Its hub announces news."
    await setup.run("update feeds.websub set pinged_at = now(), trusted = true, pings = 1")
    await setup.run("update feeds.feed_poll set polled_at = now() - interval '2 h'")
    setup.change("a", "b")
    told = await setup.poll(id_, HOUR)
    assert len(told.new) == 1
    assert told.why == "Its hub announces news."
    assert told.next_at is not None
    assert timedelta(hours=12) <= told.next_at - setup.now < rules.REQUESTED_LEASE
    setup.change("a", "b", "c")  # and the hub says nothing
    told = await setup.poll(id_, 2 * HOUR)
    assert len(told.new) == 1
    assert told.why != "Its hub announces news."


async def test_a_hub_does_not_lengthen_the_period_of_the_operator(setup: Room) -> None:
    id_ = await setup.add("a", period=HOUR)
    await setup.poll(id_)
    await setup.run("update feeds.websub set pinged_at = now(), trusted = true, pings = 1")
    told = await setup.poll(id_, HOUR)
    assert told.next_at == setup.now + HOUR


async def test_disabling_a_feed_unsubscribes_at_its_hub(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    async with setup.databases.search.transaction() as conn:
        await subscriptions.set_state(conn, [id_], "disabled")
    assert (await request("POST", setup.hub.asked[0]["hub.callback"], b"x")).status == 410
    assert await subscribe.unsubscribe(setup.databases, setup.fetcher, [id_]) == []
    await setup.hub.settled()
    assert setup.hub.asked[1]["hub.mode"] == "unsubscribe"
    assert "hub.secret" not in setup.hub.asked[1]
    assert setup.hub.told[-1].status == 200
    assert (await setup.ask(STATE))[0][0] == "left"
    assert (await setup.hub.publish(b"x")).status == 410
    async with setup.databases.search.transaction() as conn:
        await subscriptions.set_state(conn, [id_], "enabled")
    await setup.poll(id_, HOUR)
    assert setup.hub.asked[2]["hub.callback"] != setup.hub.asked[0]["hub.callback"]
    assert (await setup.ask(STATE))[0][0] == "active"


async def test_a_gone_feed_unsubscribes_at_its_hub(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    setup.site.add("/feed", Response(status=410))
    assert (await setup.poll(id_, HOUR)).kind == "gone"
    assert [one["hub.mode"] for one in setup.hub.asked] == ["subscribe", "unsubscribe"]
    setup.site.add("/feed", atom("a"))
    assert (await setup.poll(id_, HOUR)).kind == "off"
    assert len(setup.hub.asked) == 2


async def test_a_feed_that_has_no_hub_any_more(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    setup.site.add("/feed", atom("a", "b"))
    await setup.poll(id_, HOUR)
    assert [one["hub.mode"] for one in setup.hub.asked] == ["subscribe", "unsubscribe"]
    assert (await setup.ask(STATE))[0][0] == "left"


async def test_another_hub_is_another_subscription(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    async with Hub() as other:
        setup.site.add("/feed", atom("a", hub=other.url, own="https://topic.example/feed"))
        await setup.poll(id_, HOUR)
        await other.settled()
        assert len(other.asked) == 1
        assert other.asked[0]["hub.secret"] != setup.hub.asked[0]["hub.secret"]
        assert (await setup.ask("select hub, state from feeds.websub")) == [(other.url, "active")]
    assert (await setup.hub.publish(b"x")).status == 404


async def test_link_headers_win_over_the_document(setup: Room, site: Website) -> None:
    links = f'<{setup.hub.url}>; rel="hub", <https://topic.example/true>; rel=self'
    body = atom("a", hub="https://wrong.example/hub", own="https://wrong.example/feed").body
    id_ = await setup.add("a")
    site.add("/feed", Response(body, headers={"Link": links}, content_type="application/atom+xml"))
    assert (await setup.poll(id_)).problems == []
    assert setup.hub.asked[0]["hub.topic"] == "https://topic.example/true"


async def test_without_a_callback_url_no_hub_gets_a_request(setup: Room) -> None:
    setup.databases = replace(setup.databases, callback_url="")
    id_ = await setup.add("a")
    await setup.poll(id_)
    assert setup.hub.asked == []
    assert await setup.ask(STATE) == []


async def test_secrets_that_a_hub_repeats_are_hidden(setup: Room) -> None:
    setup.hub.status, setup.hub.echoes = 400, True
    id_ = await setup.add("a")
    told = await setup.poll(id_)
    [(token, secret, *reason)] = await setup.ask("select token, secret, reason from feeds.websub")
    for words in map(str, (*told.problems, *reason)):
        assert "HTTP 400 So: hub.callback=" in words
        assert (str(token) in words, str(secret) in words) == (False, False)


async def test_readers_see_no_secret(setup: Room) -> None:
    id_ = await setup.add("a")
    await setup.poll(id_)
    async with (
        Database(setup.databases.work_dsn, role="usher_reader") as db,
        db.connection() as conn,
    ):
        found = await conn.execute("select state, hub from feeds.websub")
        assert len(await found.fetchall()) == 1
        for column in ("token", "secret"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute(f"select {column} from feeds.websub".encode())
