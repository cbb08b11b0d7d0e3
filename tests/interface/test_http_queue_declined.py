"""What the queue does not take over HTTP: bad input is never our fault, and leaves nothing behind."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt

UNKNOWN_CLAIM = "00000000-0000-0000-0000-000000000000"
TABLES = ("job", "job_log", "task", "resource", "job_hierarchy", "job_table_item")
PICTURE = " union all ".join(
    f"select '{name}', string_agg(t::text, ',' order by t::text) from control.{name} t"
    for name in TABLES
)
JOB: dict[str, object] = {
    "type": "bad",
    "program": "true",
    "args": ["a"],
    "scheduled": "2030-01-01T00:00:00Z",
    "resource": "r",
    "priority": 0,
    "host_rule": "allow:one",
    "key": "k",
    "data": "d",
    "parent": 1,
}
TASK: dict[str, object] = {
    "name": "n",
    "type": "bad",
    "program": "true",
    "args": [],
    "state": "enabled",
    "host_rule": "",
    "periodicity": "15m",
    "hour": 1,
    "minute": 1,
    "second": 1,
    "cron": None,
    "timezone": "UTC",
    "jitter": 0,
    "autoperiodicity": False,
    "resource": "r",
    "priority": 0,
    "data": None,
}
END = {
    "state": "completed",
    "exit_code": 0,
    "message": "m",
    "output": "o",
    "pid": 5,
    "retry_in": "1m",
}
HOSTILE: tuple[object, ...] = (
    None,
    "",
    " ",
    "\0",
    "a\0b",
    "x" * 30_000,
    "ü😀" * 400,
    "allow:",
    "deny:a b",
    "infinity",
    "nan",
    "-1s",
    "999999999w",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2030-01-01T00:00:00",
    "* * * *",
    "0 0 31 2 *",
    "../../etc/passwd",
    "'; drop table control.job; --",
    -1,
    0,
    60,
    2**15,
    2**31,
    2**63,
    2**70,
    0.5,
    1e308,
    True,
    [],
    [None],
    ["\0"],
    ["x" * 3000],
    {},
    {"a": 1},
)


@pytest.fixture(scope="module")
def book(guestbook: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(guestbook, autocommit=True) as conn:
        yield conn


def picture(book: psycopg.Connection) -> dict[str, str]:
    """All that bad input could change."""
    return dict(book.execute(PICTURE.encode()).fetchall())


def running(door: Mgmt) -> tuple[int, str]:
    door.ask("POST", "/v1/jobs", {"type": "mine", "program": "true"})
    [job] = door.ask("POST", "/v1/jobs/claim", {"type": "mine", "host": "one"}).json["jobs"]
    return job["id"], job["claim"]


def mutated(given: dict[str, Any], extra: str = "unknown") -> list[dict[str, Any]]:
    """The body with each field, and one that is not known, made hostile in each way."""
    return [{**given, name: bad} for name in (*given, extra) for bad in HOSTILE]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", JOB),
        ("POST", "/v1/jobs", {"jobs": [JOB]}),
        ("POST", "/v1/jobs/claim", {"type": "none", "host": "one", "n": 1, "lease": "1m", "max_attempts": 1}),
        ("POST", "/v1/jobs/{id}/message", {"claim": "{claim}", "message": "m"}),
        ("POST", "/v1/jobs/{id}/output", {"claim": "{claim}", "output": "m"}),
        ("POST", "/v1/jobs/{id}/wrote", {"claim": "{claim}", "table": "t", "rows": ["1"]}),
        ("POST", "/v1/jobs/{id}/jobs", {"claim": "{claim}", **JOB, "parent": None}),
        ("POST", "/v1/jobs/{id}/cancel", {"why": ""}),
        ("POST", "/v1/jobs/extend", {"jobs": [], "lease": 60}),
        ("POST", "/v1/jobs/settle", {"jobs": []}),
        ("POST", "/v1/tasks", {**TASK, "name": None}),
        ("PUT", "/v1/tasks/1", {**TASK, "name": None}),
        ("PUT", "/v1/resources/r", {"capacity": 1, "interval": 10}),
    ],
)  # fmt: skip
def test_hostile_values_in_any_field_are_declined(
    door: Mgmt, book: psycopg.Connection, method: str, path: str, body: dict[str, Any]
) -> None:
    id_, claim = running(door)
    if "claim" in body:
        body = {**body, "claim": claim}
    where, before, declined = path.replace("{id}", str(id_)), picture(book), 0
    for one in mutated(body):
        told = door.ask(method, where, one)
        if told.status == 200:
            before = picture(book)
            continue
        declined += 1
        assert told.problem[0] in {400, 409, 422}, (one, told.body)
        assert picture(book) == before, one
    assert declined > 10
    for listed in ("/v1/jobs", "/v1/jobs?log=1", "/v1/tasks", "/v1/resources"):
        assert door.get(listed).status == 200


def test_hostile_values_in_the_end_of_a_run_are_declined(
    door: Mgmt, book: psycopg.Connection
) -> None:
    id_, claim = running(door)
    for one in mutated({"id": id_, "claim": claim, **END}):
        before = picture(book)
        told = door.ask("POST", "/v1/jobs/settle", {"jobs": [one]})
        if told.status == 200 and told.json["settled"]:
            id_, claim = running(door)
        else:
            assert told.status in {200, 422}, (one, told.body)
            assert picture(book) == before, one


@pytest.mark.parametrize("listed", ["/v1/jobs", "/v1/jobs?log=1&", "/v1/tasks", "/v1/resources"])
@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=x", "limit=", "nothing=1", "state=asleep", "limit=1&limit=2",
        "after=%00", "contains=%00", "contains=%FF", "contains=%25_%5C", "before=-1", "before=99999999999999999999",
        "after=-1", "ended_before=x", "ended_before=0001-01-01T00:00:00%2B23:59", "since=2030-01-01", "type=%00",
        "host=%F0%9F%98%80", "task=0", "resource=%27", "log=maybe", "&&&=", "a" * 5000,
    ],
)  # fmt: skip
def test_queries_that_cannot_be_used(door: Mgmt, listed: str, query: str) -> None:
    told = door.get(f"{listed}{'' if listed.endswith('&') else '?'}{query}")
    assert told.status in {200, 422}, told.body
    if not query.startswith(("contains=%F", "contains=%2", "host", "resource", "after", "type")):
        assert told.problem == (422, "bad_input")


@pytest.mark.parametrize(
    "word", ["0", "-1", "x", "1.0", "%00", "9" * 18, "9" * 30, "%F0%9F", "1%2F2"]
)
def test_invalid_numbers_are_declined(door: Mgmt, word: str) -> None:
    for method, path, body in (
        ("GET", "/v1/jobs/{}", None),
        ("GET", "/v1/jobs/{}/tree", None),
        ("POST", "/v1/jobs/{}/retry", None),
        ("POST", "/v1/jobs/{}/cancel", {}),
        ("POST", "/v1/jobs/{}/message", {"claim": UNKNOWN_CLAIM, "message": ""}),
        ("GET", "/v1/tasks/{}", None),
        ("PUT", "/v1/tasks/{}", {}),
        ("DELETE", "/v1/tasks/{}", None),
        ("POST", "/v1/tasks/{}/run", None),
    ):
        told = door.ask(method, path.format(word), body)
        # Of a claim that does not hold, the answer is the same whether there is such a job or not.
        if path.endswith("/message") and word == "9" * 18:
            assert told.problem == (409, "claim_lost")
        else:
            assert told.problem[0] in {404, 422}, (path, told.body)


def test_invalid_names_of_resources_are_declined(door: Mgmt) -> None:
    for name in ("%00", "x" * 201, "%F0%9F%98%80" * 201):
        assert door.ask("PUT", f"/v1/resources/{name}", {}).problem == (422, "bad_input")
    assert door.ask("PUT", "/v1/resources/", {}).problem == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "type is missing"),
        ({"type": "x"}, "program is missing"),
        ({"jobs": [], "type": "x"}, "type beside jobs"),
        ({"jobs": [{"type": "x", "program": "x"}], "parent": 1}, "parent beside jobs"),
        ({"type": "x", "program": "x", "parent": 999999999}, "no job 999999999"),
        ({"type": "x y", "program": "x"}, "`$.type`"),
        ({"type": "x", "program": "x", "prio": 1}, "unknown field `prio`"),
        ({"type": "x", "program": "x", "host_rule": "allow:"}, "which machines"),
        ({"type": "x", "program": "x", "scheduled": "9999-12-31T23:59:59Z"}, "up to 9000"),
        ({"type": "x", "program": "x", "args": ["\0"]}, "NUL"),
        ({"jobs": [{"type": "x", "program": "x"}, {"type": "x", "program": ""}]}, "`$.jobs[1]"),
    ],
)
def test_it_says_what_is_wrong_with_a_job(
    door: Mgmt, book: psycopg.Connection, body: dict[str, object], said: str
) -> None:
    before = picture(book)
    told = door.ask("POST", "/v1/jobs", body)
    assert told.problem == (422, "bad_input")
    assert said in told.json["detail"]
    assert picture(book) == before


def test_one_bad_end_keeps_all_from_being_settled(door: Mgmt, book: psycopg.Connection) -> None:
    id_, claim = running(door)
    other, others = running(door)
    before = picture(book)
    good = {"id": id_, "claim": claim, "exit_code": 0}
    for bad in (
        {"id": id_, "claim": UNKNOWN_CLAIM, "state": "completed"},
        {"id": 1, "claim": UNKNOWN_CLAIM, "pid": 0},
    ):
        told = door.ask("POST", "/v1/jobs/settle", {"jobs": [good, bad]})
        assert told.problem == (422, "bad_input")
    swapped = [
        {"id": id_, "claim": others, "exit_code": 0},
        {"id": other, "claim": claim, "exit_code": 0},
    ]
    told = door.ask("POST", "/v1/jobs/settle", {"jobs": swapped})
    assert told.json == {"settled": [], "lost": [id_, other]}
    assert picture(book) == before


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/jobs/claim", "/v1/jobs/settle", "/v1/tasks", "/v1/jobs/1/jobs"]
)
def test_bodies_that_are_not_json_are_declined(door: Mgmt, path: str) -> None:
    for body in (b"", b"{", b"\xff", b'{"type": "\\ud800"}', b"[" * 100_000):
        told = door.ask("POST", path, body)
        assert told.problem[0] in {400, 422}
    many = {"jobs": [{"id": n, "claim": UNKNOWN_CLAIM} for n in range(1, 10_002)]}
    if path == "/v1/jobs/settle":
        assert door.ask("POST", path, many).problem == (413, "too_large")
        assert door.ask("POST", "/v1/jobs/extend", many).problem == (413, "too_large")


def test_unknown_methods_are_declined(door: Mgmt) -> None:
    assert door.get("/v1/jobs/claim").problem == (405, "method_not_allowed")
    told = door.ask("DELETE", "/v1/jobs/1")
    assert (told.problem[0], told.headers["allow"]) == (405, "GET, HEAD")
    assert door.ask("POST", "/v1/tasks/1", {}).headers["allow"] == "DELETE, GET, HEAD, PUT"
