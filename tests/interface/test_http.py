"""The HTTP API as programs use it: answers and errors."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.endpoints import ENDPOINTS
from support.mgmt.mgmt_process import Mgmt
from usher import __version__

DOCS = Path(__file__).parents[2] / "docs"
PROBES = ("/healthz", "/readyz", "/metrics", "/version", "/get_health_status")


def pages(guestbook: str, host: str) -> dict[str, str]:
    """The paths of a host in the guestbook, with their states."""
    asks = "select path, state from work.guestbook g join work.hosts h using (domain64) where name = %s"
    with psycopg.connect(guestbook) as conn:
        return dict(conn.execute(asks, [host]).fetchall())


@pytest.mark.seed("004.12")
def test_a_knock_answers_every_url(door: Mgmt, guestbook: str) -> None:
    given = ("https://KNOCK.example/a?utm_source=x#top", "javascript:1", "knock.example/a", "::")
    told = door.knock(*given).json
    assert told["counts"] == {"admit": 1, "wait": 1, "refuse": 2}
    assert told["reasons"]["new_page"] == 1
    assert sum(told["reasons"].values()) == 4
    assert [one["url"] for one in told["answers"]] == list(given)
    assert told["answers"][0] == {
        "url": given[0],
        "canonical": "https://knock.example/a",
        "verdict": "admit",
        "reason": "new_page",
        "detail": "",
    }
    refused = told["answers"][1]
    assert (refused["canonical"], refused["reason"]) == (None, "unsupported_scheme")
    assert "javascript" in refused["detail"]
    assert pages(guestbook, "knock.example") == {"/a": "pending"}


def test_a_knock_may_ask_for_counts_only(door: Mgmt) -> None:
    told = door.knock("counts.example", answers=False).json
    expected = {"counts": {"admit": 1, "wait": 0, "refuse": 0}, "reasons": {"new_page": 1}}
    assert told == {**expected, "brought": 0}
    assert door.knock().json["answers"] == []


def test_a_dry_run_changes_nothing(door: Mgmt, guestbook: str) -> None:
    for _ in range(2):
        told = door.knock("https://dry.example/", dry_run=True).json
        assert told["reasons"] == {"new_page": 1}
    assert pages(guestbook, "dry.example") == {}
    assert door.knock("https://dry.example/").json["reasons"] == {"new_page": 1}


def test_a_full_knock_with_a_pass_brings_the_host_along(door: Mgmt, guestbook: str) -> None:
    door.knock(*(f"https://full.example/{n}" for n in range(3)))
    with psycopg.connect(guestbook) as conn:
        conn.execute("update work.guestbook set state = 'crawled' where path in ('/0', '/1', '/2')")
    told = door.knock("https://full.example/", kind="full", **{"pass": True}).json
    assert told["reasons"] == {"full_pass": 1}
    assert told["brought"] == 3
    assert pages(guestbook, "full.example") == dict.fromkeys(("/", "/0", "/1", "/2"), "pending")


def test_where_a_link_was_found_limits_it(door: Mgmt) -> None:
    assert door.knock("https://finder.example/").status == 200
    told = door.knock("https://far.example/", found_on="https://finder.example/page").json
    assert told["reasons"] == {"host_unknown": 1}
    assert door.knock("x.example", found_on="javascript:1").problem == (422, "bad_input")


@pytest.mark.seed("004.1", "004.12")
@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("full/pass", "full_pass"),
        ("full/nopass", "host_due"),
        ("single/pass", "single_pass"),
        ("single/nopass", "new_page"),
    ],
)
def test_entree_as_jemison_has_it(door: Mgmt, guestbook: str, way: str, reason: str) -> None:
    host = f"{reason.replace('_', '-')}.example"
    body = {"scheme": "https", "host": host, "path": "/x", "api-key": "lego"}
    told = door.ask("PUT", f"/api/entree/{way}", body)
    assert (told.status, told.json) == (200, {"status": "ok", "verdict": "admit", "reason": reason})
    assert pages(guestbook, host) == {"/x": "pending"}


@pytest.mark.parametrize("path", [None, "", " ", "/", "page"])
def test_entree_fills_in_what_is_missing(door: Mgmt, guestbook: str, path: str | None) -> None:
    host = f"bare-{'no' if path is None else len(path)}-{'/' in (path or '')}.example".lower()
    body = {"host": host, "data": {"id": "1", "source": "entree", "payload": "x"}}
    door.ask("PUT", "/api/entree/single/nopass", body if path is None else {**body, "path": path})
    assert list(pages(guestbook, host)) == ["/page" if path == "page" else "/"]


@pytest.mark.parametrize("path", PROBES)
def test_probes(door: Mgmt, path: str) -> None:
    got, head = door.get(path), door.ask("HEAD", path)
    assert (got.status, head.status, head.body) == (200, 200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]


def test_probes_say(door: Mgmt) -> None:
    assert door.get("/healthz").json == {"status": "ok"}
    assert door.get("/readyz").json == {"status": "ready"}
    assert door.get("/get_health_status").json == {"status": "healthy"}
    assert door.get("/version").json["usher"] == __version__


def test_metrics_are_short(door: Mgmt) -> None:
    assert 50 < len(door.get("/metrics").body.splitlines()) < 400


def test_metrics_count_verdicts(door: Mgmt) -> None:
    def counted() -> float:
        text = door.get("/metrics").body.decode()
        found = re.search(
            r'^usher_door_verdicts_total{reason="bad_url"} (\S+)$', text, re.MULTILINE
        )
        return float(found[1]) if found else 0

    before = counted()
    door.knock("http://[", "http://]")
    assert counted() == before + 2


def test_request_ids_come_back_and_are_logged(door: Mgmt) -> None:
    asked = {"X-Request-Id": "trace-1"}
    assert door.ask("GET", "/nothing?x", headers=asked).headers["x-request-id"] == "trace-1"
    bad = door.ask("GET", "/nothing", headers={"X-Request-Id": "a b"}).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{16}", bad)
    door.get("/healthz")
    requests = [line for line in door.lines if line["event"] == "request"]
    assert [(line["path"], line["status"]) for line in requests if line["id"] == "trace-1"] == [
        ("/nothing", 404)
    ]
    assert not [line for line in requests if line["path"] in PROBES]


def test_every_answer_is_closed_to_browsers(door: Mgmt) -> None:
    for told in (door.get("/healthz"), door.get("/nothing")):
        assert told.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in told.headers["content-security-policy"]
        assert told.headers["cache-control"] == "no-store"
        assert "server" not in told.headers


def refs(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [ref for inner in value.values() for ref in refs(inner)]
    return [ref for inner in value for ref in refs(inner)] if isinstance(value, list) else []


def test_openapi_lists_every_endpoint(door: Mgmt) -> None:
    drawn: dict[str, Any] = door.get("/v1/openapi.json").json
    assert drawn["openapi"] == "3.1.0"
    listed = {
        (method.upper(), path): operation
        for path, methods in drawn["paths"].items()
        for method, operation in methods.items()
    }
    assert set(listed) == {(one.method, one.path) for one in ENDPOINTS}
    assert len({one["operationId"] for one in listed.values()}) == len(listed)
    for (_, path), operation in listed.items():
        named = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert set(operation["responses"]) == {"200", "default"}
    schemas = {f"#/components/schemas/{name}" for name in drawn["components"]["schemas"]}
    assert set(refs(drawn)) <= schemas
    knock = drawn["components"]["schemas"]["KnockRequest"]
    assert knock["properties"]["urls"]["maxItems"] == 10_000
    assert "pass" in knock["properties"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_every_endpoint_is_documented(endpoint: Any) -> None:  # noqa: ANN401
    assert f"`{endpoint.method} {endpoint.path}`" in (DOCS / "http.md").read_text()
