"""Results, dependencies and pauses over HTTP."""

from typing import Any

import pytest

from interface.test_http_queue import UNKNOWN_CLAIM, add, claim, settle, show, started
from support.mgmt.mgmt_process import Mgmt


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """A type of job of the test's own."""
    return str(request.node.name).replace("_", "-").partition("[")[0][:60]


def result_of(door: Mgmt, id_: int) -> Any:  # noqa: ANN401
    told = door.get(f"/v1/jobs/{id_}/result")
    assert told.status == 200, told.body
    return told.json


def test_a_run_sets_its_result(door: Mgmt, kind: str) -> None:
    id_, claim_ = started(door, kind)
    assert result_of(door, id_) == {"id": id_, "state": "running", "result": None, "set": False}
    path = f"/v1/jobs/{id_}/result"
    assert door.ask("POST", path, {"claim": claim_, "result": {"n": [1]}}).status == 200
    forged = door.ask("POST", path, {"claim": UNKNOWN_CLAIM, "result": 2})
    assert (forged.status, forged.json["code"]) == (409, "claim_lost")
    large = door.ask("POST", path, {"claim": claim_, "result": "x" * 20_000})
    assert (large.status, "at most 16,384" in large.json["detail"]) == (422, True)
    settle(door, {"id": id_, "claim": claim_, "exit_code": 0})
    assert result_of(door, id_) == {
        "id": id_, "state": "completed", "result": {"n": [1]}, "set": True,
    }  # fmt: skip
    assert show(door, id_)["result"]["value"] == {"n": [1]}


def test_a_manager_settles_with_a_result(door: Mgmt, kind: str) -> None:
    id_, claim_ = started(door, kind)
    settle(door, {"id": id_, "claim": claim_, "exit_code": 0, "result": None})
    assert result_of(door, id_) == {"id": id_, "state": "completed", "result": None, "set": True}


def test_a_job_waits_for_another(door: Mgmt, kind: str) -> None:
    first = add(door, f"{kind}-a")
    second = add(door, kind, needs=[first])
    assert claim(door, kind) == []
    shown = show(door, second)
    assert (shown["job"]["state"], shown["needs"]) == (
        "waiting",
        [{"id": first, "state": "pending"}],
    )
    assert str(first) in shown["why"][0]
    assert show(door, first)["needed_by"] == [second]
    listed = door.get(f"/v1/jobs?type={kind}&state=waiting").json["jobs"]
    assert [job["id"] for job in listed] == [second]
    [run] = claim(door, f"{kind}-a")
    settle(door, {"id": first, "claim": run["claim"], "exit_code": 0})
    assert [job["id"] for job in claim(door, kind)] == [second]


def test_needs_that_cannot_be(door: Mgmt, kind: str) -> None:
    told = door.ask("POST", "/v1/jobs", {"type": kind, "program": "p", "needs": [2**40]})
    assert (told.status, "there is no job" in told.json["detail"]) == (422, True)
    stranger = add(door, f"{kind}-a")
    id_, claim_ = started(door, kind)
    body = {"claim": claim_, "type": kind, "program": "true", "needs": [stranger]}
    told = door.ask("POST", f"/v1/jobs/{id_}/jobs", body)
    assert (told.status, "is not a child" in told.json["detail"]) == (403, True)
    told = door.ask("POST", f"/v1/jobs/{id_}/jobs", {**body, "needs": [id_]})
    assert told.status == 200, told.body


def test_a_type_is_paused_and_resumed(door: Mgmt, kind: str) -> None:
    add(door, kind)
    told = door.ask("PUT", f"/v1/types/{kind}", {"paused": True, "reason": "down"})
    assert (told.status, told.json["paused"], told.json["reason"]) == (200, True, "down")
    assert claim(door, kind) == []
    assert kind in [one["type"] for one in door.get("/v1/types").json["types"]]
    assert door.ask("PUT", f"/v1/types/{kind}", {"paused": False}).json["paused"] is False
    assert len(claim(door, kind)) == 1
    assert door.ask("PUT", "/v1/types/no%20type", {"paused": True}).status == 422


def test_a_resource_is_paused_and_resumed(door: Mgmt, kind: str) -> None:
    add(door, kind, resource=kind)
    told = door.ask("PUT", f"/v1/resources/{kind}", {"paused": True, "interval": "250ms"})
    assert (told.json["paused"], told.json["capacity"], told.json["interval"]) == (True, 1, "0.25s")
    assert claim(door, kind) == []
    assert door.ask("PUT", f"/v1/resources/{kind}", {"capacity": 2}).json["paused"] is True
    told = door.ask("PUT", f"/v1/resources/{kind}", {"paused": False})
    assert (told.json["paused"], told.json["capacity"]) == (False, 2)
    assert len(claim(door, kind)) == 1
