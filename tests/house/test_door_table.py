"""The decision table that people read in docs/door.md is the one that decides."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

import usher
from usher.door.rules import WAITING, Clock, Kind, Knock, Page, Reason, State, Verdict, judge
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
    """One situation: all that the table looks at."""

    knock: Knock
    page: Page | None
    clock: Clock


def tables(section: str) -> list[list[str]]:
    """The cells of the table in a section of the page, heading first."""
    text = DOC.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not re.fullmatch(r"-+", row[0])]


HEADING, *TABLE = tables("The decision table")
ROWS_READ = [Row(*cells) for cells in TABLE]

# What each word of a column means for a situation.
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
        "pending or crawling": lambda case: case.page is not None and case.page.state in WAITING,
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
    """Every situation there is, each clock on both sides of now and on the spot."""
    moments = (NOW - WEEK, NOW, NOW + timedelta(microseconds=1), NOW + WEEK)
    pages: list[Page | None] = [None]
    pages += [Page(state, moment) for state in get_args(State) for moment in moments]
    clocks = [Clock(moment, WEEK, open_) for moment in moments for open_ in (None, NOW - WEEK)]
    for kind, hall_pass, page, clock in product(get_args(Kind), (False, True), pages, clocks):
        yield Case(Knock(kind, hall_pass), page, clock)


def fits(row: Row, case: Case) -> bool:
    return all(words[getattr(row, column)](case) for column, words in WORDS.items())


def row_for(case: Case) -> Row:
    return next(row for row in ROWS_READ if fits(row, case))


def test_it_has_nine_rows_under_the_known_headings() -> None:
    assert HEADING == COLUMNS
    assert [row.number for row in ROWS_READ] == [str(number) for number in range(1, 10)]


@pytest.mark.seed("004.24")
@pytest.mark.parametrize("row", ROWS_READ, ids=lambda row: row.number)
def test_each_row_says_what_the_rules_decide(row: Row) -> None:
    mine = [case for case in cases() if row_for(case) is row]
    assert mine
    for case in mine:
        reason = judge(case.knock, case.page, case.clock, NOW)
        assert (reason, reason.verdict) == (row.reason, row.verdict), case
        assert DECISION_ROWS[case.knock.kind, reason] == int(row.number)


def test_every_reason_is_in_the_table_or_before_it() -> None:
    before = [cells[0] for cells in tables("Before the table")[1:]]
    assert set(before).isdisjoint(row.reason for row in ROWS_READ)
    assert {*before, *(row.reason for row in ROWS_READ)} == {reason.value for reason in Reason}
    assert all(Reason(reason).verdict is Verdict.REFUSE for reason in before)
