"""`usher status`, `usher explain` and `usher hosts show` at the command line."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from support.processes.commands import Ran, clean, usher
from usher.db.embedded.locks import exclusive_lock
from usher.mgmt.watchdog import WATCHDOG_LOCK


def at(dsn: str, *words: str) -> Ran:
    ran = usher(*words, environment={"DATABASE_URL": dsn, "USHER_DATA": "/nowhere"})
    assert "Traceback" not in ran.err
    return ran


def change(dsn: str, *texts: str) -> None:
    with psycopg.connect(dsn) as conn:
        for text in texts:
            conn.execute(text.encode())


def kinds(ran: Ran) -> list[str]:
    return [one["kind"] for one in ran.json["holdups"]]


def populate(dsn: str) -> None:
    """A page that is searchable in one row of two, one that waits, and components of all types."""
    at(dsn, "add", "x.example/a", "x.example/b")
    change(
        dsn,
        "update work.settings set rows = 2",
        "insert into work.component (host, type, seen_at) values ('c:1', 'crawler', now()), "
        "('b:1', 'index-builder', now()), ('s:1', 'index-server', now())",
        "update work.component set \"row\" = 1 where host = 's:1'",
        "insert into work.chunk (crawler_id, builder_id, claimed_at, state, crawled_at, index_state, built_at) "
        "select c.id, b.id, now(), 'crawled', now(), 'built', now() from work.component c, work.component b "
        "where c.host = 'c:1' and b.host = 'b:1'",
        'insert into work.placement (chunk_id, component_id, "row", state, since) '
        "select k.id, c.id, 1, 'loaded', now() from work.chunk k, work.component c where c.host = 's:1'",
        "insert into work.unplaced_chunk select 2, id from work.chunk",
        "update work.guestbook set state = 'crawled', status = 200, last_fetched = now(), text64 = -2, "
        "chunk_id = (select id from work.chunk), indexed_in = (select id from work.chunk) where path = '/a'",
        "insert into work.robots (domain64, scheme, status, body, fetched_at, expires_at) "
        "select domain64, 1, 200, E'User-agent: *\\nDisallow: /b', now(), now() + interval '1 day' from work.hosts",
        "update work.hosts set troubles = 2, trouble = E'HTTP 429\\x1b[31m', trouble_at = now(), "
        "ready_at = now() + interval '1 hour', claim_at = now() + interval '1 hour', robots_delay = '9s'",
        "insert into work.sitemap (domain64, path, scheme, found_in, found_at, read_at, pages, sitemaps, problem) "
        "select domain64, '/sitemap.xml', 1, 'robots.txt', now(), now(), 7, 0, 'cut short' from work.hosts",
    )  # fmt: skip


def test_a_host_is_being_crawled_only_while_usher_runs(database: str) -> None:
    at(database, "add", "x.example/a")
    change(
        database,
        "insert into work.component (host, type, registered_at) values ('c:1', 'crawler', now() - interval '1 day')",
        "update work.hosts set held_by = (select id from work.component), claim_at = now() + interval '1 hour', "
        "ready_at = now() + interval '1 hour'",
    )  # fmt: skip
    assert "1 of a crawl that stopped" in at(database, "status").out
    change(database, "update work.component set seen_at = now()")
    assert "1 being crawled" in at(database, "status").out


def test_components_are_counted_and_their_reasons_end_once(database: str) -> None:
    change(
        database,
        "insert into work.component (host, type, seen_at, health, health_since, health_reason) values "
        "('s:1', 'index-server', now(), 'healthy', now(), ''), ('s:2', 'index-server', now(), 'healthy', now(), ''), "
        "('s:3', 'index-server', now(), 'failure', now(), 'OpenSearch is unavailable.')",
    )
    text = at(database, "status").out
    assert all(words in text for words in ("2 servers healthy", "1 server failure")), text
    assert ": OpenSearch is unavailable; it holds no chunks" in text


def test_an_empty_database_is_healthy(database: str) -> None:
    ran = at(database, "status")
    assert ran.code == 0, ran.err
    assert "Usher is not running.\n    → usher up" in ran.out
    assert "No page is known yet.\n    → usher crawl URL" in ran.out
    told = at(database, "status", "--json")
    assert (told.code, told.json["well"], told.json["holdups"]) == (0, True, [])
    assert told.json["work"]["pages"]["known"] == 0
    change(
        database,
        "insert into work.component (host, type, seen_at) values ('c:1', 'front-end', now())",
    )
    with psycopg.connect(database) as conn:
        conn.execute(b"select pg_advisory_lock(%s)", [WATCHDOG_LOCK])
        ran = at(database, "status")
        assert (ran.code, "All stages are healthy." in ran.out) == (0, True), ran.out


def test_failed_pages_and_jobs_are_named(database: str) -> None:
    at(database, "add", "x.example/a")
    change(
        database,
        "update work.guestbook set state = 'error', failures = 1, reason = 'no response'",
    )
    ran = at(database, "status")
    assert "1 page failed.\n    → usher pages errors" in ran.out
    assert "All stages are healthy." not in ran.out


def test_an_explanation_does_not_contradict_itself(database: str) -> None:
    at(database, "add", "x.example/gone", "x.example/failed")
    change(
        database,
        "update work.guestbook set state = 'crawled', status = 404, gone = true, misses = 1, "
        "last_fetched = now() where path = '/gone'",
        "update work.guestbook set state = 'error', status = 500, failures = 1 where path = '/failed'",
    )
    gone = at(database, "explain", "https://x.example/gone").out
    assert "gone: the server answered that the page does not exist" in gone
    assert "removed" not in gone
    assert "ago), status 404\n" in gone
    assert "  → usher add --pass https://x.example/gone\n" in gone
    assert "page        crawled; scheme https\n" in gone
    failed = at(database, "explain", "https://x.example/failed").out
    assert "never fetched with success" in failed
    assert "failed once, status 500" in failed


def test_pages_take_the_options_of_their_list_and_name_what_is_no_error(database: str) -> None:
    assert at(database, "pages").err == "The list is empty.\n"
    assert (at(database, "remove", "--list").out, at(database, "hosts", "list").out) == ("", "")
    at(database, "add", "x.example/a")
    change(database, "update work.guestbook set state = 'crawled', status = 404, gone = true")
    for words in (("--summary",), ("--host", "x.example"), ("--result", "gone", "--json")):
        assert at(database, "pages", *words).out == at(database, "pages", "list", *words).out != ""
    wrong = at(database, "pages", "--host", "x.example", "errors")
    assert (wrong.code, "usher pages errors …" in wrong.err) == (2, True)
    errors = at(database, "pages", "errors", "--host", "x.example").err
    assert errors == (
        "No page failed.\nThe server has no page at 1 URL.\n"
        "  → usher pages list --result gone --host x.example\n"
    )


def test_an_explanation_states_no_visit_that_does_not_happen(database: str) -> None:
    at(database, "add", "x.example/a")
    at(database, "hosts", "set", "x.example", "--max-pages", "1")
    waiting = at(database, "explain", "x.example/a").out
    page = waiting.partition("page        ")[2].partition("Answers of the door")[0]
    assert "due" not in page
    beyond = at(database, "explain", "x.example/b").out
    assert "  → usher hosts set x.example --max-pages N\n" in beyond
    change(database, "update work.guestbook set state = 'crawled', last_fetched = now()")
    assert at(database, "remove", "https://x.example/a", "--reason", "private").code == 0
    removed = at(database, "explain", "x.example/a").out
    assert "next visit  None, because the operator removed the page." in removed
    shown = at(database, "pages", "show", "x.example/a").out
    assert "next visit  None, because the operator removed the page." in shown


def test_a_running_demo_is_named(database: str, tmp_path: Path) -> None:
    environment = {"DATABASE_URL": database, "USHER_DATA": str(tmp_path)}
    (tmp_path / "demo").mkdir()
    with exclusive_lock(tmp_path / "demo" / "run.lock"):
        for words in (("status",), ("explain", "https://never.example/")):
            ran = usher(*words, environment=environment)
            command = f"usher --data {tmp_path / 'demo'} {' '.join(words)}"
            assert f"  → {command}\n" in ran.err, ran.err
    assert "demo" not in usher("status", environment=environment).err


def test_problems_are_listed_with_commands(database: str) -> None:
    populate(database)
    ran = at(database, "status")
    assert ran.code == 3
    assert "\x1b" not in ran.out
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[2:9]] == [
        "STAGE", "crawl", "build", "load", "retire", "search", "jobs",
    ]  # fmt: skip
    for words in (
        "1 crawler", "1 builder", "1 server", "1 failing", "HTTP 429", "2: no servers, 0 copies, 1 unplaced",
        "Problems", " 1. No watchdog is running", "All waiting pages belong to host x.example, which rests until",
        "Row 2 has no healthy server: 1 chunk is not searchable there.", "→ usher index-server --row 2",
    ):  # fmt: skip
        assert words in ran.out
    told = at(database, "status", "--json")
    assert (told.code, told.json["well"]) == (3, False)
    assert kinds(told) == ["no_watchdog", "hosts_rest", "row_empty"]
    assert told.json["work"]["hosts"]["longest"][0]["until"].endswith("+00:00")
    assert told.json["queue"]["types"] == []


def test_only_readers_may_read_the_status(database: str) -> None:
    assert at(make_conninfo(database, user="usher_reader"), "status").code == 0
    assert at(make_conninfo(database, user="usher_worker"), "status").code == 4


def test_a_schema_that_is_behind_or_ahead_is_a_problem(empty_database: str, database: str) -> None:
    ran = at(empty_database, "status", "--json")
    assert (ran.code, kinds(ran)) == (3, ["schema_behind", "schema_behind"])
    assert (ran.json["work"], ran.json["queue"]) == (None, None)
    assert "usher db migrate" in at(empty_database, "status").out
    change(database, "insert into work.schema_migrations values ('29990101000000')")
    ahead = at(database, "status", "--json")
    assert (ahead.code, kinds(ahead)) == (3, ["schema_ahead"])
    assert ahead.json["queue"] is not None
    away = {"DATABASE_URL": "postgresql://127.0.0.1:1/db", "USHER_CONNECT_TIMEOUT": "0"}
    assert usher("status", environment=away).code == 5


def test_watch_redraws_until_interrupted(database: str) -> None:
    assert at(database, "status", "--watch").code == 2
    mine, its = pty.openpty()
    environment = clean({"DATABASE_URL": database, "TERM": "xterm"})
    process = subprocess.Popen(
        [sys.executable, "-m", "usher", "status", "--watch"], env=environment, stdout=its, stderr=its
    )  # fmt: skip
    try:
        drawn = b""
        deadline = time.monotonic() + 60
        while drawn.count(b"\x1b[J") < 2 and time.monotonic() < deadline:
            drawn += os.read(mine, 100_000)
        process.send_signal(2)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(mine)
        os.close(its)
    assert drawn.count(b"\x1b[H\x1b[J") == 2
    assert b"Usher is not running." in drawn


def test_explain_from_the_door_to_the_result(database: str) -> None:
    populate(database)
    ran = at(database, "explain", "https://x.example/a")
    for words in (
        "Answers of the door now", "Crawl and index", "last result: HTTP 200", "by c:1, claimed",
        "allowed: no rule matches", "HTTP 200, 26 bytes, read", "9 s between requests, from its robots.txt",
        "failed 2 times: HTTP 429", "hash fffffffffffffffe", ": built, built by b:1", "row 1: loaded on s:1",
        "no copy in row 2", "Searchable now: yes. In chunk", "in 1 of 2 rows.",
    ):  # fmt: skip
        assert words in ran.out, words
    assert "\x1b" not in ran.out
    told = at(database, "explain", "--json", "https://x.example/a").json
    assert (told["findable"], told["text"]["text64"]) == (True, "fffffffffffffffe")
    assert told["index"]["copies"][0]["host"] == "s:1"
    assert (told["crawl"]["crawler"], told["robots"]["rule"]) == ("c:1", "no rule matches")
    waits = at(database, "explain", "https://x.example/b").out.splitlines()
    assert waits[1].startswith("Searchable now: no. It waits: its host rests until")
    assert waits[2] == "  → usher hosts show x.example"
    assert "not allowed: Disallow: /b (group *)" in "\n".join(waits)
    no_url = at(database, "explain", "javascript:x").out
    assert "Searchable now: no. It cannot be admitted" in no_url
    door = at(make_conninfo(database, user="usher_door"), "explain", "x.example/a")
    assert (door.code, "Searchable now: unknown" in door.out) == (0, True)


def test_hosts_show_has_the_crawl_state(database: str) -> None:
    populate(database)
    told = at(database, "hosts", "show", "x.example").out
    for words in (
        "politeness  ready in 60 minutes",
        "robots      HTTP 200",
        "/sitemap.xml: 7 pages, read",
        "cut short",
    ):
        assert words in told, told
    shown = at(database, "hosts", "show", "--json", "x.example").json
    assert shown["pages"] == {"pending": 1, "crawled": 1}
    assert (shown["pace"]["troubles"], shown["robots"][0]["status"], shown["held_back"]) == (
        2,
        200,
        0,
    )
    assert shown["sitemaps"][0]["problem"] == "cut short"
    door = at(make_conninfo(database, user="usher_door"), "hosts", "show", "--json", "x.example")
    assert (door.code, "pace" in door.json) == (0, False)


def test_release(database: str) -> None:
    populate(database)
    assert at(database, "hosts", "release", "x.example").code == 3
    change(
        database,
        "insert into work.stale_copy (page_id, chunk_id, at, held) "
        "select g.id, k.id, now(), true from work.guestbook g, work.chunk k where g.path = '/a'",
    )
    assert "held_back" in kinds(at(database, "status", "--json"))
    ran = at(database, "hosts", "release", "x.example")
    assert (ran.code, ran.err) == (0, "x.example: 1 page will be removed from the index\n")
    with psycopg.connect(database) as conn:
        assert conn.execute("select count(*) from work.retirement").fetchone() == (1,)
        assert conn.execute("select held, ready from work.stale_copy").fetchone() == (False, True)


def test_help_needs_no_driver() -> None:
    code = "import sys, usher.cli.commands.status; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
