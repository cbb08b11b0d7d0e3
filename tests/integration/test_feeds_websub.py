"""WebSub against a real hub and a real MGMT: asked, verified, told, renewed, ended; all else is refused."""

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
async def room(served: tuple[str, Mgmt], site: Website) -> AsyncIterator[Room]:
    dsn, running = served
    async with await connect(dsn) as conn:
        await conn.execute("truncate feeds.feed_metadata, feeds.feed, control.task cascade")
    async with opened(dsn, running.address) as (databases, fetcher), Hub() as hub:
        yield Room(databases, fetcher, site, hub)


async def test_asked_and_agreed(room: Room) -> None:
    id_ = await room.add("a")
    told = await room.poll(id_)
    assert (told.kind, told.problems) == ("fresh", [])
    [form] = room.hub.asked
    assert form["hub.mode"] == "subscribe"
    assert form["hub.topic"] == "https://topic.example/feed"
    assert form["hub.lease_seconds"] == "864000"
    assert len(form["hub.secret"]) == 64
    assert len(form["hub.callback"].rpartition("/")[2]) >= 32
    [answer] = room.hub.told
    assert (answer.status, answer.body) == (200, b"echo <this> & so on")
    assert await room.ask(STATE) == [("active", "", 0, 0, 0, False)]
    [(left, again)] = await room.ask(
        "select lease_until - now(), renew_at < lease_until from feeds.websub"
    )
    assert isinstance(left, timedelta)
    assert 9 * DAY < left <= 10 * DAY
    assert again
    await room.poll(id_, HOUR)
    assert len(room.hub.asked) == 1


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
async def test_news_make_the_feed_due(room: Room, method: str) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    await room.run("update feeds.feed_poll set polled_at = now() - interval '1 hour'")
    [(far,)] = await room.ask("select next_run > now() + interval '10 min' from control.task")
    assert far
    assert (await room.hub.publish(b"<feed/>", method=method)).status == 200
    due = "select next_run <= now() from control.task"
    assert await room.ask(due) == [(True,)]
    why = "select next_at <= now(), why from feeds.feed_poll"
    assert await room.ask(why) == [(True, "Its hub has news.")]
    assert await room.ask(STATE) == [("active", "", 0, 1, 0, True)]


@pytest.mark.parametrize(
    "signature", ["", "sha256=", "sha256=" + "0" * 64, "md5=0", "sha256", "\xff=1", "sha1=" + "é"]
)
async def test_what_is_not_the_hubs_is_heard_and_ignored(room: Room, signature: str) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    before = await room.ask("select next_run from control.task")
    told = await room.hub.publish(b"<feed/>", signature=signature)
    assert told.status == 200
    assert await room.ask("select next_run from control.task") == before
    assert await room.ask(STATE) == [("active", "", 0, 0, 1, False)]


async def test_news_of_another_body_are_not_signed(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    form, made = room.hub.asked[0], "sha1=" + "0" * 40
    for body in (b"", b"x" * 100_000):
        told = await request("POST", form["hub.callback"], body, {"X-Hub-Signature": made})
        assert told.status == 200
    assert await room.ask(STATE) == [("active", "", 0, 0, 2, False)]


async def test_news_come_no_faster_than_polls_may(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    for _ in range(3):
        await room.hub.publish(b"<feed/>")
    [(soon, late)] = await room.ask(
        "select t.next_run >= p.polled_at + interval '59 s', t.next_run <= p.polled_at + interval '61 s'"
        " from control.task t, feeds.feed_poll p"
    )
    assert (soon, late) == (True, True)
    await room.run("update feeds.feed_poll set status = 429")
    await room.run("update control.task set next_run = now() + interval '2 h'")
    await room.hub.publish(b"<feed/>")
    assert await room.ask("select next_run > now() + interval '1 h' from control.task") == [(True,)]


async def test_what_nobody_asked_for_is_not_found(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    callback, topic = room.hub.asked[0]["hub.callback"], room.hub.asked[0]["hub.topic"]
    good = {"hub.mode": "subscribe", "hub.topic": topic, "hub.challenge": "c"}
    assert (await room.hub.call(callback, good)).status == 200
    for said in (
        {**good, "hub.topic": "https://topic.example/other"},
        {**good, "hub.mode": "unsubscribe"},
        {**good, "hub.topic": ""},
    ):
        assert (await room.hub.call(callback, said)).status == 404
    for said in ({**good, "hub.mode": "steal"}, {**good, "hub.challenge": ""}, {}):
        assert (await room.hub.call(callback, said)).status == 422
    for token in ("x" * 43, "%00", "%ff", "y" * 5000):
        there = f"{callback.rpartition('/')[0]}/{token}"
        assert (await room.hub.call(there, good)).status == 404
        assert (await request("POST", there, b"x")).status == 404
    assert await room.ask(STATE) == [("active", "", 0, 0, 0, False)]


async def test_a_body_has_an_end(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    told = await request("POST", room.hub.asked[0]["hub.callback"], b"x" * 10_000_001)
    assert told.status == 413


async def test_denied_and_asked_again_much_later(room: Room) -> None:
    room.hub.verifies = False
    id_ = await room.add("a")
    await room.poll(id_)
    form = room.hub.asked[0]
    said = {"hub.mode": "denied", "hub.topic": form["hub.topic"], "hub.reason": "not you\x1b[31m"}
    assert (await room.hub.call(form["hub.callback"], said)).status == 200
    assert (await room.ask(STATE))[0][:2] == ("denied", "not you\x1b[31m")
    assert (await request("POST", form["hub.callback"], b"x")).status == 410
    await room.poll(id_, DAY)
    assert len(room.hub.asked) == 1
    room.hub.verifies = True
    await room.poll(id_, 7 * DAY)
    assert len(room.hub.asked) == 2
    assert (await room.ask(STATE))[0][0] == "active"


async def test_a_hub_in_trouble_is_asked_ever_less_often(room: Room) -> None:
    room.hub.status = 500
    id_ = await room.add("a")
    told = await room.poll(id_)
    assert told.kind == "fresh"
    assert told.problems == ["Could not subscribe at its hub: HTTP 500 So: no"]
    assert (await room.ask(STATE))[0][:3] == ("asked", "HTTP 500 So: no", 1)
    for wait, asked in ((5, 1), (6, 2), (11, 2), (11, 3), (30, 3), (11, 4)):
        await room.poll(id_, timedelta(minutes=wait))
        assert len(room.hub.asked) == asked
    room.hub.status, room.hub.headers = 503, "Retry-After: 172800\r\n"
    await room.poll(id_, DAY)
    await room.poll(id_, DAY)
    assert len(room.hub.asked) == 5
    room.hub.status = 202
    await room.poll(id_, DAY)
    assert (await room.ask(STATE))[0][:3] == ("active", "", 0)
    assert len({one["hub.callback"] for one in room.hub.asked}) == 1


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://10.1.2.3/hub", "the private host 10.1.2.3"),
        ("http://169.254.169.254/latest", "the private host 169.254.169.254"),
        ("http://127.0.0.1:6379/", "port 6379"),
        ("http://[::1]/hub", "the private host [::1]"),
    ],
)
async def test_a_hub_leads_to_no_private_place(room: Room, address: str, words: str) -> None:
    id_ = await room.add("a", hub=address)
    told = await room.poll(id_)
    assert told.kind == "fresh"
    assert words in told.problems[0]


@pytest.mark.parametrize("address", ["file:///etc/passwd", "javascript:x", "mailto:a@b.c"])
async def test_what_is_no_hub_is_not_asked(room: Room, address: str) -> None:
    id_ = await room.add("a", hub=address)
    assert (await room.poll(id_)).problems == []
    assert await room.ask(STATE) == []


async def test_a_hub_may_send_us_on_but_not_in_circles(room: Room) -> None:
    async with Hub(status=307) as old:
        old.headers = f"Location: {room.hub.url}\r\n"
        id_ = await room.add("a", hub=old.url)
        assert (await room.poll(id_)).problems == []
        assert old.asked == room.hub.asked
        assert (await room.ask(STATE))[0][0] == "active"
        old.headers = f"Location: {old.url}\r\n"
        await room.run("update feeds.websub set renew_at = now() - interval '1 h'")
        assert "HTTP 307" in (await room.poll(id_, HOUR)).problems[0]
        assert len(old.asked) == 4


async def test_renewed_before_it_ends(room: Room) -> None:
    room.hub.lease = "3600"
    id_ = await room.add("a")
    await room.poll(id_)
    told = await room.poll(id_, timedelta(minutes=5))
    assert told.next_at is not None
    assert told.next_at - room.now < timedelta(minutes=48)
    assert told.why == "The subscription at its hub must be renewed."
    assert len(room.hub.asked) == 1
    await room.run("update feeds.websub set lease_until = now() + interval '2 h'")
    await room.poll(id_, timedelta(minutes=48))
    assert len(room.hub.asked) == 2
    assert room.hub.asked[0] == room.hub.asked[1]
    assert (await room.ask(STATE))[0][0] == "active"


async def test_a_hub_that_does_as_it_says_is_relied_on_and_no_longer(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    told = await room.poll(id_, HOUR)
    assert told.why != "Its hub announces news."
    await room.run("update feeds.websub set pinged_at = now(), trusted = true, pings = 1")
    await room.run("update feeds.feed_poll set polled_at = now() - interval '2 h'")
    room.change("a", "b")
    told = await room.poll(id_, HOUR)
    assert len(told.new) == 1
    assert told.why == "Its hub announces news."
    assert told.next_at is not None
    assert timedelta(hours=12) <= told.next_at - room.now < rules.REQUESTED_LEASE
    room.change("a", "b", "c")  # and the hub says nothing
    told = await room.poll(id_, 2 * HOUR)
    assert len(told.new) == 1
    assert told.why != "Its hub announces news."


async def test_where_the_operator_says_how_often_no_hub_slows_it(room: Room) -> None:
    id_ = await room.add("a", period=HOUR)
    await room.poll(id_)
    await room.run("update feeds.websub set pinged_at = now(), trusted = true, pings = 1")
    told = await room.poll(id_, HOUR)
    assert told.next_at == room.now + HOUR


async def test_a_feed_that_is_disabled_leaves_its_hub(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    async with room.databases.search.transaction() as conn:
        await subscriptions.set_state(conn, [id_], "disabled")
    assert (await request("POST", room.hub.asked[0]["hub.callback"], b"x")).status == 410
    assert await subscribe.unsubscribe(room.databases, room.fetcher, [id_]) == []
    await room.hub.settled()
    assert room.hub.asked[1]["hub.mode"] == "unsubscribe"
    assert "hub.secret" not in room.hub.asked[1]
    assert room.hub.told[-1].status == 200
    assert (await room.ask(STATE))[0][0] == "left"
    assert (await room.hub.publish(b"x")).status == 410
    async with room.databases.search.transaction() as conn:
        await subscriptions.set_state(conn, [id_], "enabled")
    await room.poll(id_, HOUR)
    assert room.hub.asked[2]["hub.callback"] != room.hub.asked[0]["hub.callback"]
    assert (await room.ask(STATE))[0][0] == "active"


async def test_a_feed_that_is_gone_leaves_its_hub(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    room.site.add("/feed", Response(status=410))
    assert (await room.poll(id_, HOUR)).kind == "gone"
    assert [one["hub.mode"] for one in room.hub.asked] == ["subscribe", "unsubscribe"]
    room.site.add("/feed", atom("a"))
    assert (await room.poll(id_, HOUR)).kind == "off"
    assert len(room.hub.asked) == 2


async def test_a_feed_that_has_no_hub_any_more(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    room.site.add("/feed", atom("a", "b"))
    await room.poll(id_, HOUR)
    assert [one["hub.mode"] for one in room.hub.asked] == ["subscribe", "unsubscribe"]
    assert (await room.ask(STATE))[0][0] == "left"


async def test_another_hub_is_another_subscription(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    async with Hub() as other:
        room.site.add("/feed", atom("a", hub=other.url, own="https://topic.example/feed"))
        await room.poll(id_, HOUR)
        await other.settled()
        assert len(other.asked) == 1
        assert other.asked[0]["hub.secret"] != room.hub.asked[0]["hub.secret"]
        assert (await room.ask("select hub, state from feeds.websub")) == [(other.url, "active")]
    assert (await room.hub.publish(b"x")).status == 404


async def test_the_servers_word_goes_before_the_documents(room: Room, site: Website) -> None:
    links = f'<{room.hub.url}>; rel="hub", <https://topic.example/true>; rel=self'
    body = atom("a", hub="https://wrong.example/hub", own="https://wrong.example/feed").body
    id_ = await room.add("a")
    site.add("/feed", Response(body, headers={"Link": links}, content_type="application/atom+xml"))
    assert (await room.poll(id_)).problems == []
    assert room.hub.asked[0]["hub.topic"] == "https://topic.example/true"


async def test_without_an_address_of_ours_nobody_is_asked(room: Room) -> None:
    room.databases = replace(room.databases, callback_url="")
    id_ = await room.add("a")
    await room.poll(id_)
    assert room.hub.asked == []
    assert await room.ask(STATE) == []


async def test_a_hub_that_repeats_what_it_was_told_gives_no_secret_away(room: Room) -> None:
    room.hub.status, room.hub.echoes = 400, True
    id_ = await room.add("a")
    told = await room.poll(id_)
    [(token, secret, *reason)] = await room.ask("select token, secret, reason from feeds.websub")
    for words in map(str, (*told.problems, *reason)):
        assert "HTTP 400 So: hub.callback=" in words
        assert (str(token) in words, str(secret) in words) == (False, False)


async def test_who_only_looks_learns_no_secret(room: Room) -> None:
    id_ = await room.add("a")
    await room.poll(id_)
    async with (
        Database(room.databases.work_dsn, role="usher_reader") as db,
        db.connection() as conn,
    ):
        found = await conn.execute("select state, hub from feeds.websub")
        assert len(await found.fetchall()) == 1
        for column in ("token", "secret"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute(f"select {column} from feeds.websub".encode())
