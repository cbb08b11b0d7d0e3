"""Every ending of a process has one meaning for its job."""

from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.queue.job_states import (
    FINAL_STATES,
    EndReason,
    JobOutcome,
    JobState,
    ProcessEnd,
    job_outcome,
)
from usher.queue.policy import Policy

HOUR = timedelta(hours=1)
POLICY = Policy(jitter=0)
KILLS = replace(POLICY, retry_after_kill=True)
TEMPORARY, PERMANENT = JobState.TEMPORARY_ERROR, JobState.PERMANENT_ERROR


@pytest.mark.seed("002.16")
def test_the_states_are_those_of_the_database() -> None:
    words = [
        *("pending", "waiting", "running", "completed"),
        *("temporary-error", "permanent-error", "cancelled"),
    ]
    assert [str(state) for state in JobState] == words
    assert {"completed", "permanent-error", "cancelled"} == FINAL_STATES


@pytest.mark.parametrize(
    ("ending", "policy", "expected"),
    [
        (ProcessEnd(0), POLICY, (JobState.COMPLETED, 0, None)),
        (ProcessEnd(1), POLICY, (TEMPORARY, 1, None)),
        (ProcessEnd(2), POLICY, (PERMANENT, 2, None)),
        (ProcessEnd(0, detail="OK 12 items"), POLICY, (JobState.COMPLETED, 0, "OK 12 items")),
        (ProcessEnd(3), POLICY, (TEMPORARY, 3, "Invalid exit code: 3")),
        (ProcessEnd(127), POLICY, (TEMPORARY, 127, "Invalid exit code: 127")),
        (ProcessEnd(255), POLICY, (TEMPORARY, 255, "Invalid exit code: 255")),
        (ProcessEnd(-9), POLICY, (PERMANENT, -9, "Killed by signal KILL")),
        (ProcessEnd(-11), KILLS, (TEMPORARY, -11, "Killed by signal SEGV")),
        (ProcessEnd(-99), POLICY, (PERMANENT, -99, "Killed by signal 99")),
        (ProcessEnd(-15, "timeout"), POLICY, (PERMANENT, -15, "Timed out after 15m: killed by signal TERM")),
        (ProcessEnd(-9, "timeout"), KILLS, (TEMPORARY, -9, "Timed out after 15m: killed by signal KILL")),
        (ProcessEnd(0, "timeout"), POLICY, (PERMANENT, 0, "Timed out after 15m: exit code 0")),
        (ProcessEnd(None, "timeout"), POLICY, (PERMANENT, None, "Timed out after 15m")),
        (ProcessEnd(-15, "cancelled"), KILLS, (JobState.CANCELLED, -15, "Cancelled")),
        (ProcessEnd(1, "cancelled", "by anna"), POLICY, (JobState.CANCELLED, 1, "Cancelled: by anna")),
        (ProcessEnd(None, "missing", "No program feed.py"), KILLS, (PERMANENT, None, "No program feed.py")),
        (ProcessEnd(None, "missing"), POLICY, (PERMANENT, None, "Program not found")),
        (ProcessEnd(None, "unstartable", "no memory"), POLICY, (TEMPORARY, None, "Could not be started: no memory")),
        (ProcessEnd(None), POLICY, (TEMPORARY, None, "Its end was not observed")),
    ],
)  # fmt: skip
def test_endings(
    ending: ProcessEnd, policy: Policy, expected: tuple[JobState, int | None, str | None]
) -> None:
    found = job_outcome(ending, attempts=1, policy=policy, random_share=0.5)
    assert (found.state, found.exit_code, found.message) == expected
    assert found.retry_in == (HOUR if found.state is TEMPORARY else None)
    assert found.note == ""


def test_a_short_timeout_is_not_shown_as_none() -> None:
    policy = replace(POLICY, kill_after=timedelta(seconds=0.5))
    message = job_outcome(
        ProcessEnd(-15, "timeout"), attempts=1, policy=policy, random_share=0
    ).message
    assert message == "Timed out after 0.5s: killed by signal TERM"


def test_four_runs_in_all() -> None:
    states = [
        job_outcome(ProcessEnd(1), attempts=n, policy=POLICY, random_share=0.5).state
        for n in range(1, 7)
    ]
    assert states == [TEMPORARY] * 3 + [PERMANENT] * 3


def test_giving_up_is_said_without_losing_what_the_worker_said() -> None:
    note = "given up after 4 attempts"
    assert job_outcome(ProcessEnd(9), attempts=4, policy=POLICY, random_share=0) == JobOutcome(
        PERMANENT, 9, f"Invalid exit code: 9; {note}", note=note
    )
    assert job_outcome(
        ProcessEnd(1, detail="NOCONNECTION"), attempts=4, policy=POLICY, random_share=0
    ) == JobOutcome(PERMANENT, 1, f"NOCONNECTION; {note}", note=note)
    assert job_outcome(ProcessEnd(1), attempts=4, policy=POLICY, random_share=0) == JobOutcome(
        PERMANENT, 1, None, note=note
    )
    once = replace(POLICY, max_attempts=1)
    assert (
        job_outcome(ProcessEnd(1), attempts=1, policy=once, random_share=0).note
        == "given up after 1 attempt"
    )


def test_a_type_that_is_not_rescheduled_ends_with_its_first_error() -> None:
    off = replace(KILLS, auto_reschedule=False)
    note = "not retried: auto_reschedule is off"
    for ending, words in (
        (ProcessEnd(7), "Invalid exit code: 7"),
        (ProcessEnd(-9), "Killed by signal KILL"),
    ):
        found = job_outcome(ending, attempts=1, policy=off, random_share=0)
        assert found == JobOutcome(PERMANENT, ending.code, f"{words}; {note}", note=note)


def test_waits_grow_up_to_the_most() -> None:
    policy = replace(POLICY, max_attempts=10)
    waits = [
        job_outcome(ProcessEnd(1), attempts=n, policy=policy, random_share=0).retry_in
        for n in range(1, 8)
    ]
    assert waits == [n * HOUR for n in (1, 2, 4, 8, 16, 24, 24)]


def test_chance_spreads_waits_by_its_share() -> None:
    policy = replace(POLICY, jitter=0.1)
    waits = [
        job_outcome(ProcessEnd(1), attempts=1, policy=policy, random_share=luck).retry_in
        for luck in (0, 0.5, 0.75)
    ]
    assert waits == [0.9 * HOUR, HOUR, 1.05 * HOUR]


POLICIES = st.builds(
    Policy,
    auto_reschedule=st.booleans(),
    max_attempts=st.integers(1, 32_767),
    retry_after_kill=st.booleans(),
    reschedule_after=st.timedeltas(timedelta(), timedelta(days=3650)),
    backoff=st.floats(1, 100),
    most_wait=st.timedeltas(timedelta(), timedelta(days=3650)),
    jitter=st.floats(0, 1),
)
ENDINGS = st.builds(
    ProcessEnd,
    st.none() | st.integers(-64, 255),
    st.sampled_from(get_args(EndReason)),
    st.text(max_size=9),
)


@given(ENDINGS, st.integers(0, 10**9), POLICIES, st.floats(0, 1, exclude_max=True))
def test_any_ending_settles_the_job(
    ending: ProcessEnd, attempts: int, policy: Policy, luck: float
) -> None:
    found = job_outcome(ending, attempts=attempts, policy=policy, random_share=luck)
    assert found.state in {*FINAL_STATES, TEMPORARY}
    assert found.exit_code == ending.code
    assert (found.retry_in is not None) == (found.state is TEMPORARY)
    if found.retry_in is not None:
        assert attempts < policy.max_attempts
        assert policy.auto_reschedule
        assert timedelta() <= found.retry_in <= 2 * policy.most_wait
    assert found.message or (ending.why == "ended" and ending.code in {0, 1, 2})
    assert found.message is None or found.message.endswith(found.note)


@given(st.integers(1, 10**9), POLICIES)
def test_a_later_attempt_never_waits_less(attempts: int, policy: Policy) -> None:
    policy = replace(policy, max_attempts=10**10, auto_reschedule=True)
    one, other = (
        job_outcome(ProcessEnd(1), attempts=n, policy=policy, random_share=0.5).retry_in
        for n in (attempts, attempts + 1)
    )
    assert one is not None
    assert other is not None
    assert one <= other <= policy.most_wait + timedelta(microseconds=1)
