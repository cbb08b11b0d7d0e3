"""The queue over HTTP, as workers, managers and operators in any language meet it."""

import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt

NUMBERS = count(1)
UNKNOWN_CLAIM = str(UUID(int=0))


@pytest.fixture
def kind() -> str:
    """A type of job of the test's own."""
    return f"type-{next(NUMBERS)}"


def add(door: Mgmt, kind: str, **more: object) -> int:
    told = door.ask("POST", "/v1/jobs", {"type": kind, "program": "true", **more})
    assert told.status == 200, told.body
    [job] = told.json["jobs"]
    assert job["new"]
    return int(job["id"])


def claim(door: Mgmt, kind: str, n: int = 1, **more: object) -> list[dict[str, Any]]:
    told = door.ask("POST", "/v1/jobs/claim", {"type": kind, "host": "one", "n": n, **more})
    assert told.status == 200, told.body
    return list(told.json["jobs"])


def started(door: Mgmt, kind: str, **more: object) -> tuple[int, str]:
    """A job that runs: its id and claim."""
    add(door, kind, **more)
    [job] = claim(door, kind)
    return job["id"], job["claim"]


def settle(door: Mgmt, *jobs: dict[str, object]) -> Any:  # noqa: ANN401
    told = door.ask("POST", "/v1/jobs/settle", {"jobs": list(jobs)})
    assert told.status == 200, told.body
    return told.json


def show(door: Mgmt, id_: int) -> Any:  # noqa: ANN401
    told = door.get(f"/v1/jobs/{id_}")
    assert told.status == 200, told.body
    return told.json


def test_a_worker_reports_over_http(door: Mgmt, kind: str) -> None:
    """add, claim, message, output, wrote, a follow-on job, settle, show: all by plain calls."""
    id_ = add(door, kind, args=["-u", "https://a.example/"], data="x=1", priority=-5)
    told = door.ask("POST", "/v1/jobs/claim", {"type": kind, "host": "One", "n": 5, "lease": "2m"})
    [job] = told.json["jobs"]
    assert (job["id"], job["args"], job["data"]) == (id_, ["-u", "https://a.example/"], "x=1")
    assert (job["attempts"], job["priority"]) == (1, -5)
    until = datetime.fromisoformat(told.json["lease_until"])
    assert timedelta(seconds=100) < until - datetime.now(UTC) < timedelta(seconds=121)
    claim_ = {"claim": job["claim"]}
    said = door.ask("POST", f"/v1/jobs/{id_}/message", {**claim_, "message": "fetching a"})
    assert (said.status, said.json) == (200, {"status": "ok"})
    assert door.ask("POST", f"/v1/jobs/{id_}/output", {**claim_, "output": "one\0\n"}).status == 200
    rows = {**claim_, "table": "feeds.item", "rows": ["7", "8"]}
    assert door.ask("POST", f"/v1/jobs/{id_}/wrote", rows).status == 200
    more = {
        **claim_,
        "type": f"{kind}-more",
        "program": "next",
        "scheduled": "2030-01-01T00:00:00Z",
    }
    [child] = door.ask("POST", f"/v1/jobs/{id_}/jobs", more).json["jobs"]
    shown = show(door, id_)
    assert shown["live"]
    assert shown["job"]["state"] == "running"
    assert shown["job"]["hostname"] == "one"
    assert (shown["job"]["message"], shown["job"]["output"]) == ("fetching a", "one\n")
    assert settle(door, {"id": id_, **claim_, "exit_code": 0, "pid": 42}) == {
        "settled": [{"id": id_, "state": "completed", "retry_at": None}],
        "lost": [],
    }
    shown = show(door, id_)
    assert (shown["live"], shown["children"]) == (False, 1)
    ended = {name: shown["job"][name] for name in ("state", "message", "output", "exit_code")}
    assert ended == {
        "state": "completed",
        "message": "fetching a",
        "output": "one\n",
        "exit_code": 0,
    }
    assert shown["job"]["process_id"] == 42
    assert [(one["table"], one["row_id"]) for one in shown["wrote"]] == [
        ("feeds.item", "7"),
        ("feeds.item", "8"),
    ]
    assert show(door, child["id"])["parent"] == id_
    assert "2030" in " ".join(show(door, child["id"])["why"])
    tree = door.get(f"/v1/jobs/{id_}/tree").json["jobs"]
    assert [(one["id"], one["depth"]) for one in tree] == [(id_, 0), (child["id"], 1)]


@pytest.mark.parametrize("what", ["message", "output", "wrote", "jobs"])
def test_a_claim_that_does_not_hold_changes_nothing(
    door: Mgmt, guestbook: str, kind: str, what: str
) -> None:
    bodies: dict[str, dict[str, object]] = {
        "message": {"message": "x"},
        "output": {"output": "x"},
        "wrote": {"table": "t", "rows": [kind]},
        "jobs": {"type": kind, "program": "never"},
    }
    given = bodies[what]
    id_, claim_ = started(door, kind)
    other, others = started(door, f"{kind}-other")
    path = f"/v1/jobs/{id_}/{what}"
    for wrong in (UNKNOWN_CLAIM, others):
        told = door.ask("POST", path, {"claim": wrong, **given})
        assert told.problem == (409, "claim_lost")
        assert f"Job {id_} does not run under this claim" in told.json["detail"]
    assert show(door, other)["job"]["message"] is None
    settle(door, {"id": id_, "claim": claim_, "state": "permanent-error", "message": "why"})
    told = door.ask("POST", path, {"claim": claim_, **given})
    assert told.problem == (409, "claim_lost")
    ended = show(door, id_)
    assert (ended["job"]["message"], ended["job"]["output"]) == ("why", None)
    assert (ended["children"], ended["wrote"]) == (0, [])
    with psycopg.connect(guestbook) as conn:
        asked = "select count(*) from control.job where type = %s and program = 'never'"
        assert conn.execute(asked, [kind]).fetchone() == (0,)
    unknown = door.ask("POST", f"/v1/jobs/999999999/{what}", {"claim": claim_, **given})
    assert unknown.problem == (409, "claim_lost")


def test_many_jobs_in_one_request(door: Mgmt, kind: str) -> None:
    parent = add(door, kind)
    jobs: list[dict[str, object]] = [
        {"type": kind, "program": "a", "key": f"{kind}-key"},
        {"type": kind, "program": "b", "parent": parent, "args": ['"', "\\", "{,}", ""]},
        {"type": kind, "program": "c", "key": f"{kind}-key"},
    ]
    first, second, third = door.ask("POST", "/v1/jobs", {"jobs": jobs}).json["jobs"]
    assert [one["new"] for one in (first, second, third)] == [True, True, False]
    assert first["id"] == third["id"]
    assert show(door, second["id"])["parent"] == parent
    assert show(door, second["id"])["job"]["args"] == jobs[1]["args"]
    assert show(door, first["id"])["parent"] is None
    again = door.ask("POST", "/v1/jobs", jobs[0]).json["jobs"]
    assert again == [{"id": first["id"], "new": False}]
    lots = [{"type": f"{kind}-lots", "program": "x", "args": [str(n)]} for n in range(10_001)]
    assert door.ask("POST", "/v1/jobs", {"jobs": lots}).problem == (413, "too_large")
    ids = [one["id"] for one in door.ask("POST", "/v1/jobs", {"jobs": lots[1:]}).json["jobs"]]
    assert len(set(ids)) == 10_000
    assert show(door, ids[0])["job"]["args"] == ["1"]
    assert door.ask("POST", "/v1/jobs", {"jobs": []}).json == {"jobs": []}


def test_eight_claimers_get_no_job_twice(door: Mgmt, kind: str) -> None:
    door.ask("POST", "/v1/jobs", {"jobs": [{"type": kind, "program": "x"}] * 400})
    got: list[list[int]] = [[] for _ in range(8)]
    lost: list[int] = []

    def work(mine: list[int]) -> None:
        while taken := claim(door, kind, 7):
            mine += [job["id"] for job in taken]
            ends = [{"id": one["id"], "claim": one["claim"], "exit_code": 0} for one in taken]
            lost.extend(settle(door, *ends)["lost"])

    threads = [threading.Thread(target=work, args=[mine]) for mine in got]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    taken = sorted(id_ for mine in got for id_ in mine)
    assert len(taken) == len(set(taken)) == 400
    assert not lost
    assert all(got)
    listed = door.get(f"/v1/jobs?type={kind}&log=1&limit=1000").json["jobs"]
    assert sorted(one["id"] for one in listed) == taken


@pytest.mark.parametrize(
    ("end", "state", "words"),
    [
        ({"exit_code": 0}, "completed", None),
        ({"exit_code": 0, "message": "all well"}, "completed", "all well"),
        ({"exit_code": 1}, "temporary-error", None),
        ({"exit_code": 2, "message": "no such feed"}, "permanent-error", "no such feed"),
        ({"exit_code": 7}, "temporary-error", "Invalid exit code: 7"),
        ({"exit_code": -9}, "permanent-error", "Killed by signal KILL"),
        ({"state": "cancelled"}, "cancelled", None),
        ({"state": "temporary-error", "exit_code": 3}, "temporary-error", None),
        ({"state": "permanent-error", "output": "a\0b"}, "permanent-error", None),
    ],
)
def test_how_runs_end(
    door: Mgmt, kind: str, end: dict[str, object], state: str, words: str | None
) -> None:
    id_, claim_ = started(door, kind)
    told = settle(door, {"id": id_, "claim": claim_, **end})
    assert [(one["id"], one["state"]) for one in told["settled"]] == [(id_, state)]
    assert (told["settled"][0]["retry_at"] is not None) == (state == "temporary-error")
    job = show(door, id_)["job"]
    assert (job["state"], job["message"]) == (state, words)
    assert job["exit_code"] == end.get("exit_code")
    assert settle(door, {"id": id_, "claim": claim_, **end}) == {"settled": [], "lost": [id_]}


def test_retries_wait_as_told_and_end_with_the_last_attempt(door: Mgmt, kind: str) -> None:
    add(door, kind)
    for attempt in (1, 2):
        [job] = claim(door, kind, max_attempts=2)
        assert job["attempts"] == attempt
        end = {"id": job["id"], "claim": job["claim"], "exit_code": 1, "message": "busy"}
        [told] = settle(door, {**end, "retry_in": "90m"})["settled"]
        if attempt == 1:
            wait = datetime.fromisoformat(told["retry_at"]) - datetime.now(UTC)
            assert timedelta(minutes=89) < wait <= timedelta(minutes=90)
            again = door.ask("POST", f"/v1/jobs/{job['id']}/retry")
            assert again.json == {"id": job["id"], "new": False}
    assert (told["state"], told["retry_at"]) == ("permanent-error", None)
    shown = show(door, job["id"])
    assert shown["job"]["message"] == "busy; given up after 2 attempts"
    assert [one["state"] for one in shown["runs"]] == ["temporary-error", "permanent-error"]


def test_what_was_not_begun_is_given_back(door: Mgmt, kind: str) -> None:
    id_, claim_ = started(door, kind)
    told = settle(door, {"id": id_, "claim": claim_, "state": "pending"})
    assert told == {"settled": [{"id": id_, "state": "pending", "retry_at": None}], "lost": []}
    assert show(door, id_)["job"]["attempts"] == 0
    [job] = claim(door, kind)
    assert (job["id"], job["attempts"]) == (id_, 1)


def test_signs_of_life(door: Mgmt, guestbook: str, kind: str) -> None:
    alive, stopped, lost = (started(door, kind) for _ in range(3))
    told = door.ask("POST", f"/v1/jobs/{stopped[0]}/cancel", {"why": "not wanted"})
    assert told.json == {"id": stopped[0], "state": "running"}
    settle(door, {"id": lost[0], "claim": lost[1], "exit_code": 0})
    runs = [{"id": id_, "claim": claim_} for id_, claim_ in (alive, stopped, lost)]
    told = door.ask("POST", "/v1/jobs/extend", {"jobs": runs, "lease": 3600})
    assert told.json == {"alive": [alive[0]], "stop": [stopped[0]], "lost": [lost[0]]}
    with psycopg.connect(guestbook) as conn:
        asked = "select lease_until > now() + interval '50 minutes' from control.job where id = %s"
        assert conn.execute(asked, [alive[0]]).fetchone() == (True,)
    end = {"id": stopped[0], "claim": stopped[1], "exit_code": -15}
    assert settle(door, end)["settled"][0]["state"] == "cancelled"


def test_cancel_and_retry_by_state(door: Mgmt, kind: str) -> None:
    id_ = add(door, kind)
    assert door.ask("POST", f"/v1/jobs/{id_}/retry").problem == (409, "wrong_state")
    told = door.ask("POST", f"/v1/jobs/{id_}/cancel", {"why": "no \0longer needed"})
    assert told.json == {"id": id_, "state": "cancelled"}
    assert show(door, id_)["job"]["message"] == "no longer needed"
    again = door.ask("POST", f"/v1/jobs/{id_}/cancel", {})
    assert again.problem == (409, "wrong_state")
    assert "cancelled" in again.json["detail"]
    told = door.ask("POST", f"/v1/jobs/{id_}/retry")
    assert told.json["new"]
    assert show(door, told.json["id"])["parent"] == id_
    for what in ("", "/tree"):
        assert door.get(f"/v1/jobs/999999999{what}").problem == (404, "not_found")
    for what in ("retry", "cancel"):
        told = door.ask("POST", f"/v1/jobs/999999999/{what}", {})
        assert told.problem == (404, "not_found")


def test_lists_are_filtered_and_paged(door: Mgmt, kind: str) -> None:
    ids = [add(door, kind, args=[f"{kind}-{n}"], resource=f"r-{kind}") for n in range(5)]
    listed = f"/v1/jobs?type={kind}"
    page = door.get(f"{listed}&limit=2").json
    assert [one["id"] for one in page["jobs"]] == [ids[4], ids[3]]
    page = door.get(f"{listed}&limit=2&before={page['before']}").json
    assert [one["id"] for one in page["jobs"]] == [ids[2], ids[1]]
    page = door.get(f"{listed}&limit=2&before={page['before']}").json
    assert ([one["id"] for one in page["jobs"]], page["before"]) == ([ids[0]], None)
    found = door.get(f"/v1/jobs?contains={kind}-3&state=pending&resource=r-{kind}").json["jobs"]
    assert [one["id"] for one in found] == [ids[3]]
    assert door.get(f"{listed}&state=running").json["jobs"] == []
    assert door.get(f"{listed}&host=one").json["jobs"] == []
    assert door.get(f"{listed}&log=true").json == {"jobs": [], "before": None, "ended_before": None}
    assert door.ask("HEAD", listed).status == 200
    for id_ in ids:
        door.ask("POST", f"/v1/jobs/{id_}/cancel", {})
    seen: list[int] = []
    more = ""
    while True:
        page = door.get(f"{listed}&log=1&limit=2{more}").json
        seen += [one["id"] for one in page["jobs"]]
        if page["before"] is None:
            break
        ended = page["ended_before"].replace("+", "%2B")
        more = f"&before={page['before']}&ended_before={ended}"
    assert seen == ids[::-1]
