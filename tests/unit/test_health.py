"""The watchdog fails a component only for good reason, and the clock of a failure runs fairly."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.mgmt.component_names import MAX_REASON
from usher.mgmt.health import (
    Action,
    DeclaredState,
    Health,
    HealthChange,
    HealthLimits,
    HealthRecord,
    Ping,
    condition,
    due_actions,
    judge,
    suspect_self,
)

START = datetime(2026, 11, 16, tzinfo=UTC)
ROUND = timedelta(seconds=5)
PATIENCE = HealthLimits(misses=3, probation=4 * ROUND, grace=12 * ROUND)
NEW = HealthRecord("healthy", START)
GOOD = Ping("healthy")
SILENT = Ping(None, "timed out")
BROKEN = Ping("failure")
ERROR = Ping("healthy", declared="error")
SAID = {"g": GOOD, "-": SILENT, "b": BROKEN, "e": ERROR}
SOON = [Action.END_LEASES, Action.LEAVE_MAP]
LATE = [*SOON, Action.RESEAT, Action.REDO]


class Watch:
    """A component over many rounds, one letter of SAID each."""

    def __init__(self, record: HealthRecord = NEW) -> None:
        self.record = record
        self.now = record.since
        self.events: list[HealthChange] = []
        self.health = ""

    def hear(self, said: str | Iterable[Ping]) -> "Watch":
        for ping in (SAID[one] for one in said) if isinstance(said, str) else said:
            self.now += ROUND
            self.record, events = judge(self.record, ping, self.now, PATIENCE)
            self.events += events
            self.health += self.record.health[0]
        return self

    def due(self) -> list[Action]:
        return due_actions(self.record, self.now, PATIENCE)


@pytest.mark.seed("001.38", "001.39", "001.40")
@pytest.mark.parametrize(
    ("said", "health"),
    [
        ("ggg", "hhh"),
        ("--g", "hhh"),
        ("---", "hhf"),
        ("-b-", "hhf"),
        ("bbb", "hhf"),
        ("e", "f"),
        ("---g", "hhfp"),
        ("eeeg", "fffp"),
        ("---ggggg", "hhfpppph"),
        ("---ggg-", "hhfpppf"),
        ("---ggge", "hhfpppf"),
        ("---gggb", "hhfpppf"),
        ("---ggggg--", "hhfpppphhh"),
        ("---ggg-ggggg", "hhfpppfpppph"),
        ("-g-g-g-g-g", "hhhhhhhhhh"),
        ("--g--", "hhhhf"),
    ],
)
def test_health_follows_the_answers(said: str, health: str) -> None:
    assert Watch().hear(said).health == health


@pytest.mark.seed("001.39")
def test_every_transition_is_an_event_with_its_time_and_reason() -> None:
    watch = Watch().hear("---ggggg")
    at = [START + n * ROUND for n in (3, 4, 8)]
    assert watch.events == [
        HealthChange(at[0], "healthy", "failure", "timed out"),
        HealthChange(at[1], "failure", "probation", "it answers or calls again"),
        HealthChange(at[2], "probation", "healthy", "no error on probation"),
    ]
    assert watch.record.seen == watch.now
    assert watch.hear("--").record.seen == at[2]


@pytest.mark.seed("001.3", "001.39")
@pytest.mark.parametrize(
    ("ping", "reason"),
    [
        (Ping(None), "no answer"),
        (Ping(None, "x" * 9999), "x" * (MAX_REASON - 1) + "…"),
        (BROKEN, "it answered 'failure'"),
        (Ping("\x00ü" + "x" * 9999), "it answered '\\x00\\xfc" + "x" * 38 + "'"),
        (Ping(""), "it answered ''"),
        (ERROR, "it declared an error"),
        (Ping("failure", declared="waiting"), ""),
        (Ping("failure", declared="paused"), ""),
        (Ping("probation"), ""),
    ],
)
def test_the_reason_says_what_is_wrong(ping: Ping, reason: str) -> None:
    watch = Watch().hear([ping] * 3)
    assert watch.record.reason == reason
    assert watch.record.health == ("failure" if reason else "healthy")


@pytest.mark.parametrize(
    ("ping", "reason"),
    [
        (Ping(None, "timed out", has_called=True), ""),
        (Ping("HTTP 500", has_called=True), ""),
        (Ping("no HTTP", has_called=True), ""),
        (Ping("HTTP 500"), "it answered 'HTTP 500'"),
        (Ping("failure", has_called=True), "it answered 'failure'"),
        (Ping(None, declared="error", has_called=True), "it declared an error"),
    ],
)
def test_a_call_is_a_sign_of_life(ping: Ping, reason: str) -> None:
    watch = Watch().hear([ping] * 3)
    assert watch.record.reason == reason
    assert watch.record.health == ("failure" if reason else "healthy")


def test_calls_end_a_failure_and_one_call_is_enough_not_to_suspect_oneself() -> None:
    assert Watch().hear([SILENT] * 3 + [Ping(None, has_called=True)] * 5).health == "hhfpppph"
    assert not suspect_self([SILENT, Ping(None, has_called=True)])


def test_one_that_waits_or_is_paused_fails_only_when_it_is_silent() -> None:
    for declared in ("waiting", "paused"):
        for status in ("healthy", "failure"):
            assert Watch().hear([Ping(status, declared=declared)] * 9).health == "h" * 9
        assert Watch().hear([Ping(None, declared=declared)] * 3).health == "hhf"


def test_a_failure_is_acted_on_at_once_and_after_the_grace() -> None:
    watch = Watch().hear("--")
    assert watch.due() == []
    for _ in range(12):
        assert watch.hear("-").due() == SOON
    assert watch.hear("-").due() == LATE
    assert watch.hear("-").due() == LATE
    assert watch.hear("g").due() == []


def test_one_that_comes_and_goes_uses_up_its_grace() -> None:
    watch = Watch().hear("---")
    assert watch.hear("----g").due() == []  # down for 5 rounds of 12
    assert watch.hear("g----").due() == SOON  # and now for 3 more
    assert watch.hear("---").due() == SOON
    assert watch.hear("-").due() == LATE


def test_time_on_probation_is_not_held_against_it() -> None:
    assert Watch().hear("---" + "ggg-" * 11).due() == SOON
    assert Watch().hear("---" + "ggg-" * 12).due() == LATE  # each time it was down for a round


def test_the_grace_begins_anew_once_it_was_healthy() -> None:
    watch = Watch().hear("-" * 12 + "g" * 5)
    assert watch.record.health == "healthy"
    assert watch.hear("-" * 14).due() == SOON
    assert watch.hear("-").due() == LATE


@pytest.mark.parametrize(
    ("said", "fit", "draining"),
    [
        ("g", "fit", "draining"),
        ("--", "fit", "draining"),
        ("---", "unsure", "unsure"),
        ("---g", "unsure", "unsure"),
        ("-" * 15, "gone", "gone"),
        ("-" * 15 + "g", "unsure", "unsure"),
        ("-" * 15 + "g-", "gone", "gone"),
        ("-" * 15 + "ggggg", "fit", "draining"),
    ],
)
def test_health_decides_how_an_index_server_is_seated(said: str, fit: str, draining: str) -> None:
    watch = Watch().hear(said)
    assert condition(watch.record, watch.now, PATIENCE) == fit
    assert condition(watch.record, watch.now, PATIENCE, draining=True) == draining


@pytest.mark.parametrize(
    ("said", "suspect"),
    [("", False), ("-", False), ("--", True), ("----", True), ("-g-", False), ("-b", False)],
)
def test_when_all_are_silent_the_watchdog_suspects_itself(said: str, *, suspect: bool) -> None:
    assert suspect_self(SAID[one] for one in said) == suspect


def test_a_clock_that_goes_back_does_no_harm() -> None:
    watch = Watch().hear("---")
    early = START - timedelta(days=9)
    record, events = judge(watch.record, GOOD, early, PATIENCE)
    assert (record.since, record.down) == (watch.record.since, timedelta(0))
    assert events[0].at == record.since
    assert due_actions(watch.record, early, PATIENCE) == SOON


def test_fewer_misses_asked_for_do_not_fail_one_that_answers() -> None:
    record, events = judge(HealthRecord("healthy", START, misses=9), GOOD, START, PATIENCE)
    assert (record.health, events) == ("healthy", [])


PINGS = st.builds(
    Ping,
    st.none() | st.sampled_from(["healthy", "failure", "probation"]) | st.text(),
    st.text(),
    st.sampled_from(get_args(DeclaredState)),
)


@given(st.lists(PINGS, max_size=40))
def test_whatever_is_heard_the_record_holds_together(pings: list[Ping]) -> None:
    watch = Watch()
    allowed: set[tuple[Health, Health]] = {
        ("healthy", "failure"),
        ("failure", "probation"),
        ("probation", "failure"),
        ("probation", "healthy"),
    }
    for ping in pings:
        before, heard = watch.record, len(watch.events)
        after = watch.hear([ping]).record
        new = watch.events[heard:]
        assert len(new) == (before.health != after.health)
        assert all((one.before, one.after) in allowed for one in new)
        assert all(one.reason and one.at == after.since for one in new)
        assert (after.since == before.since) == (not new)
        assert after.down >= before.down or after.health == "healthy"
        assert after.down + (watch.now - after.since) <= watch.now - START
        assert bool(watch.due()) == (after.health == "failure")
    last = [event.after for event in watch.events][-1:] or ["healthy"]
    assert watch.record.health == last[0]


@given(st.lists(st.sampled_from("g-be"), max_size=60))
def test_the_grace_is_all_time_in_failure_since_it_was_healthy(said: list[str]) -> None:
    watch = Watch().hear("".join(said))
    failing = watch.record.health == "failure"
    rounds = watch.health[watch.health.rfind("h") + 1 :].count("f") - failing
    assert (Action.RESEAT in watch.due()) == (failing and rounds >= 12)
