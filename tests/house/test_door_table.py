"""The decision table in docs/door.md is the one that the door uses."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

import usher
from support.models.door import DoorPage, HostClock, judge
from usher.door.rules import WAITING_STATES, Knock, KnockKind, PageState, Reason, Verdict
from usher.observe.explain import DECISION_ROWS

DOC = (Path(usher.__file__).parents[2] / "docs" / "door.md").read_text()
NOW = datetime(2026, 11, 16, tzinfo=UTC)
WEEK = timedelta(days=7)
COLUMNS = ["#", "kind", "pass", "page", "clock", "verdict", "reason", "effect"]


class Row(NamedTuple):
    number: str
    kind: str
    hall_pass: str
    page: str
    clock: str
    verdict: str
    reason: str
    effect: str


class Case(NamedTuple):
    """One situation: everything that the table depends on."""

    knock: Knock
    page: DoorPage | None
    clock: HostClock


def tables(section: str) -> list[list[str]]:
    """Return the cells of the table in a section of the page, heading first."""
    text = DOC.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not re.fullmatch(r"-+", row[0])]


HEADING, *TABLE = tables("The decision table")
ROWS_READ = [Row(*cells) for cells in TABLE]

# The meaning of each value of a column.
WORDS: dict[str, dict[str, Callable[[Case], bool]]] = {
    "kind": {
        "any": lambda _: True,
        "single": lambda case: case.knock.kind == "single",
        "full": lambda case: case.knock.kind == "full",
    },
    "hall_pass": {
        "any": lambda _: True,
        "yes": lambda case: case.knock.hall_pass,
        "no": lambda case: not case.knock.hall_pass,
    },
    "page": {
        "any": lambda _: True,
        "pending or crawling": lambda case: (
            case.page is not None and case.page.state in WAITING_STATES
        ),
        "known": lambda case: case.page is not None,
        "new": lambda case: case.page is None,
    },
    "clock": {
        "–": lambda _: True,  # noqa: RUF001 - as the table has it
        "page due": lambda case: case.page is not None and case.page.next_fetch <= NOW,
        "page not due": lambda case: case.page is not None and case.page.next_fetch > NOW,
        "host due": lambda case: case.clock.due(NOW),
        "host not due": lambda case: not case.clock.due(NOW),
    },
}


def cases() -> Iterator[Case]:
    """Yield every situation, with each clock before, at and after now."""
    moments = (NOW - WEEK, NOW, NOW + timedelta(microseconds=1), NOW + WEEK)
    pages: list[DoorPage | None] = [None]
    pages += [DoorPage(state, moment) for state in get_args(PageState) for moment in moments]
    clocks = [HostClock(moment, WEEK, open_) for moment in moments for open_ in (None, NOW - WEEK)]
    for kind, hall_pass, page, clock in product(get_args(KnockKind), (False, True), pages, clocks):
        yield Case(Knock(kind, hall_pass), page, clock)


def fits(row: Row, case: Case) -> bool:
    return all(words[getattr(row, column)](case) for column, words in WORDS.items())


def row_for(case: Case) -> Row:
    return next(row for row in ROWS_READ if fits(row, case))


def test_it_has_nine_rows_and_the_expected_headings() -> None:
    assert HEADING == COLUMNS
    assert [row.number for row in ROWS_READ] == [str(number) for number in range(1, 10)]


@pytest.mark.seed("004.24")
@pytest.mark.parametrize("row", ROWS_READ, ids=lambda row: row.number)
def test_each_row_agrees_with_the_rules(row: Row) -> None:
    own_cases = [case for case in cases() if row_for(case) is row]
    assert own_cases
    for case in own_cases:
        reason = judge(case.knock, case.page, case.clock, NOW)
        assert (reason, reason.verdict) == (row.reason, row.verdict), case
        assert DECISION_ROWS[case.knock.kind, reason] == int(row.number)


def test_every_reason_is_in_the_table_or_before_it() -> None:
    before = [cells[0] for cells in tables("Before the table")[1:]]
    assert set(before).isdisjoint(row.reason for row in ROWS_READ)
    assert {*before, *(row.reason for row in ROWS_READ)} == {reason.value for reason in Reason}
    assert all(Reason(reason).verdict is Verdict.REFUSE for reason in before)
