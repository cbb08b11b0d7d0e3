"""Removal at the command line, on a terminal and over HTTP: previews, questions, records, refusals and access."""

import os
import pty
import select
import subprocess
import time
from contextlib import suppress

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt
from support.processes.cli_fixtures import Desk
from support.processes.commands import clean
from support.processes.pseudo_terminal import at_terminal
from support.processes.stack import USHER

SITE = "https://shop.example"


@pytest.fixture
def shop(desk: Desk) -> Desk:
    """Six pages in the index, two of them with the same text, and a page of another host of the domain."""
    paths = ("/", "/a", "/private/x", "/private/y", "/copy1", "/copy2")
    desk.usher("add", *(f"{SITE}{path}" for path in paths), "https://www.shop.example/w")
    with psycopg.connect(desk.environment["DATABASE_URL"]) as conn:
        conn.execute(
            "update work.guestbook set state = 'crawled', last_fetched = now(), indexed_in = 1, text64 = id"
        )
        conn.execute(
            "update work.guestbook g set same_as = o.id, text64 = o.text64 from work.guestbook o "
            "where g.path = '/copy2' and o.path = '/copy1'"
        )
    return desk


def answer_question(desk: Desk, *words: str, answer: str) -> tuple[int, str]:
    """Run a command on a terminal, and type an answer when it asks."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*USHER, *words],
        env=clean(desk.environment),
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=desk.directory,
    )
    os.close(its)
    data, is_answered, deadline = b"", False, time.monotonic() + 60
    with suppress(OSError):  # the terminal is closed when the command ends
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                data += os.read(ours, 65_536)
            if b"[y/N]" in data and not is_answered:
                os.write(ours, f"{answer}\n".encode())
                is_answered = True
    code = process.wait(10)
    os.close(ours)
    return code, data.decode()


def test_a_preview_changes_nothing_and_names_copies(shop: Desk) -> None:
    run = at_terminal("remove", "--dry-run", f"{SITE}/copy1", environment=shop.environment)
    assert run.code == 0
    assert "shop.example/copy1: 1 known page, 1 of them searchable" in run.text
    assert "have the same text and are not removed:\n    shop.example/copy2" in run.text
    assert "Nothing was changed." in run.text
    assert shop.usher("remove", "--list", "--json").json == []


def test_a_page_is_removed_without_a_question_and_recorded(shop: Desk) -> None:
    run = at_terminal(
        "remove", "http://SHOP.example/a", "--reason", "notice 4", environment=shop.environment
    )
    assert run.code == 0, run.text
    assert "removed: shop.example/a (1 known page, 1 of them searchable)" in run.text
    assert "Search pages hide them within 2 seconds" in run.text
    assert "--keep-warc" in run.text
    [removal] = shop.usher("remove", "--list", "--json").json
    assert (removal["target"], removal["reason"]) == ("shop.example/a", "notice 4")
    assert "@" in removal["removed_by"]
    told = shop.usher("explain", f"{SITE}/a")
    assert "Searchable now: no. The operator removed it" in told.out
    assert "notice 4" in told.out
    assert "usher remove --undo shop.example/a" in told.out
    again = shop.usher("remove", f"{SITE}/a", "--reason", "notice 5")
    assert again.out.startswith("already removed: shop.example/a")
    refused = shop.usher("add", "--json", f"{SITE}/a", f"{SITE}/a/")
    assert refused.code == 3
    assert refused.out.count('"reason": "removed"') == 2


def test_a_host_is_removed_only_after_a_confirmation(shop: Desk) -> None:
    words = ("remove", "shop.example", "--reason", "contract ended")
    code, text = answer_question(shop, *words, answer="n")
    assert code == 130
    assert "Remove shop.example (6 known pages, 6 of them searchable)?" in text
    without = shop.usher(*words)
    assert without.code == 2
    assert "Add --yes to confirm without a terminal." in without.err
    assert shop.usher("remove", "--list", "--json").json == []
    code, text = answer_question(shop, *words, answer="y")
    assert code == 0, text
    assert "Not covered: www.shop.example." in text
    assert len(shop.usher("remove", "--list", "--json").json) == 1


def test_undo_names_the_removal_that_covers_a_page(shop: Desk) -> None:
    shop.usher("remove", f"{SITE}/private/", "--reason", "notice")
    wrong = shop.usher("remove", "--undo", f"{SITE}/private/x")
    assert wrong.code == 3
    assert "but another removal covers it" in wrong.err
    assert "usher remove --undo 'shop.example/private/*'" in wrong.err
    undone = shop.usher("remove", "--undo", "shop.example/private/*")
    assert undone.out == "undone: shop.example/private/*\n"
    assert "Pages whose text is still in the index are searchable again within 2 s" in undone.err
    assert "it crawls and indexes the other pages again." in undone.err
    assert shop.usher("remove", "--list").err == "The list is empty.\n"
    assert "undone by" in shop.usher("remove", "--list", "--all").out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "Give a TARGET"),
        ((f"{SITE}/a",), "Give a --reason"),
        (("--list", "x.example"), "--list takes no TARGET"),
        (("--undo", "--dry-run", "x.example"), "Give only one of --undo, --dry-run"),
        (("https://shop.example/*/x", "--reason", "r"), "has a `*` that is not at its end"),
    ],
)
def test_wrong_calls_say_what_to_do(desk: Desk, words: tuple[str, ...], error: str) -> None:
    run = desk.usher("remove", *words)
    assert run.code == 2
    assert error in run.err


def test_blocking_a_host_says_what_stays_searchable(shop: Desk) -> None:
    run = shop.usher("hosts", "block", "shop.example", "--reason", "spam")
    assert run.code == 0
    assert run.err.startswith("blocked: shop.example\nshop.example: 6 pages stay searchable\n")
    assert "usher remove shop.example --reason TEXT" in run.err


def test_pages_and_lists_show_removed_pages(shop: Desk) -> None:
    with psycopg.connect(shop.environment["DATABASE_URL"]) as conn:
        conn.execute("update work.guestbook set removed = true where path = '/a'")
    [page] = shop.usher("pages", "list", "--result", "removed", "--json").json
    assert page["url"] == f"{SITE}/a"


def test_removals_over_http(door: Mgmt, guestbook: str) -> None:
    door.knock("https://http.example/a", "https://http.example/b")
    body = {"target": "https://http.example/", "reason": "notice"}
    dry = door.ask("POST", "/v1/removals", {**body, "dry_run": True})
    counted = {
        "target": "http.example",
        "kind": "host",
        "pages": 2,
        "searchable": 0,
        "removal": None,
    }
    assert (dry.status, dry.json) == (200, counted)
    etag = door.ask("GET", "/v1/hidden").headers["etag"]
    number = door.ask("POST", "/v1/removals", body).json["removal"]
    assert number
    assert door.ask("POST", "/v1/removals", body).json["removal"] is None
    assert door.knock("https://http.example/c").json["reasons"] == {"removed": 1}
    time.sleep(0.6)  # MGMT reads the list twice a second
    hidden = door.ask("GET", "/v1/hidden", headers={"If-None-Match": etag})
    assert {"host": "http.example", "subdomains": False, "paths": [], "prefix": "/"} in hidden.json[
        "rules"
    ]
    same = door.ask("GET", "/v1/hidden", headers={"If-None-Match": hidden.headers["etag"]})
    assert same.status == 304
    [listed] = [
        one for one in door.ask("GET", "/v1/removals").json["removals"] if one["id"] == number
    ]
    assert (listed["target"], listed["reason"], listed["undone_at"]) == (
        "http.example",
        "notice",
        None,
    )
    assert listed["removed_by"].startswith("token ")
    undone = door.ask("POST", "/v1/removals/undo", {"target": "http.example"})
    assert undone.json == {"target": "http.example", "removal": number}
    assert door.ask("POST", "/v1/removals/undo", {"target": "http.example"}).problem[0] == 404
    assert door.knock("https://http.example/c").json["reasons"] == {"new_page": 1}
    with psycopg.connect(guestbook) as conn:
        kinds = conn.execute(
            "select kind from work.event where kind like 'remov%' order by id"
        ).fetchall()
    assert kinds == [("removed",), ("removal_undone",)]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/removals", None),
        ("POST", "/v1/removals", {"target": "x.example", "reason": "r"}),
        ("POST", "/v1/removals/undo", {"target": "x.example"}),
    ],
)
def test_only_an_admin_may_remove_pages(
    door: Mgmt, method: str, path: str, body: dict[str, str] | None
) -> None:
    assert door.ask_unproven(method, path, body).problem[0] == 401


@pytest.mark.parametrize(
    "body",
    [
        {"target": "x.example"},
        {"target": "x.example", "reason": " "},
        {"target": "::", "reason": "r"},
        {"reason": "r"},
    ],
)
def test_an_incomplete_request_is_refused(door: Mgmt, body: dict[str, str]) -> None:
    assert door.ask("POST", "/v1/removals", body).problem[0] in {400, 422}
