"""The door at the command line: knocking, explaining, files and pipes."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.processes.commands import clean, usher

pytestmark = pytest.mark.soak  # a process for each command takes its time

BAD = {
    b"https://a b/": "bad_url",
    b"https://": "bad_url",
    b"https://example.com/" + 10_000 * b"x": "too_long",
    b"https://example.com/\xff\xfe": "bad_url",
    b"\x80\x81": "bad_url",
    b"https://user:secret@example.com/": "bad_url",
    b"javascript:alert(1)": "unsupported_scheme",
    b"mailto:me@example.com": "unsupported_scheme",
    b"https://256.1.1.1/": "bad_url",
    b"https://a..b/": "bad_url",
}
GOOD = {
    b"https://[2001:db8::1]/": "https://[2001:db8::1]/",
    "https://bücher.example/ä".encode(): "https://xn--bcher-kva.example/%C3%A4",
    b"http://127.0.0.1:8080/private": "http://127.0.0.1:8080/private",
    b"http://localhost/": "http://localhost/",
    b"stuff_1.com": "https://stuff_1.com/",
    b"HTTPS://Example.COM:443/?utm_source=x#y": "https://example.com/",
}


def to(dsn: str) -> dict[str, str]:
    return {"DATABASE_URL": dsn}


def counted(dsn: str) -> list[int]:
    """How many rows each table of the door has."""
    with psycopg.connect(dsn) as conn:
        tables = ("tld", "domain", "hosts", "guestbook")
        return [conn.execute(f"select count(*) from work.{one}").fetchall()[0][0] for one in tables]


def change(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(sql.encode())


def test_a_url_comes_in_once(database: str) -> None:
    there = to(database)
    first = usher("add", "https://Example.com", environment=there)
    assert (first.code, first.out) == (0, "admit   new_page            https://example.com/\n")
    assert first.err.splitlines() == [
        "new_page: it is a new page",
        "No crawler is running; the pages wait.",
        "  → usher up",
    ]
    again = usher("add", "example.com", environment=there)
    assert (again.code, again.out.split()) == (
        0,
        ["wait", "already_waiting", "https://example.com/"],
    )
    assert counted(database)[2:] == [1, 1]


def test_the_answers_as_json(database: str) -> None:
    ran = usher("add", "--json", "example.com/a", "tel:911", environment=to(database))
    assert ran.json == {
        "counts": {"admit": 1, "wait": 0, "refuse": 1},
        "reasons": {"new_page": 1, "unsupported_scheme": 1},
        "brought": 0,
        "answers": [
            {"url": "example.com/a", "canonical": "https://example.com/a",
             "verdict": "admit", "reason": "new_page", "detail": ""},
            {"url": "tel:911", "canonical": None, "verdict": "refuse", "reason": "unsupported_scheme",
             "detail": "The scheme 'tel' is not one of https, http, sftp, ftp."},
        ],
    }  # fmt: skip


def test_every_bad_line_has_its_verdict_and_harms_no_other(database: str) -> None:
    given = [line for pair in zip(BAD, [*GOOD, *GOOD], strict=False) for line in pair]
    ran = usher("add", "--jsonl", "-", environment=to(database), given=b"\n".join(given))
    assert ran.code == 0
    assert len(ran.lines) == len(given)
    found = dict(zip(given, ran.lines, strict=True))
    assert {line: found[line]["reason"] for line in BAD} == BAD
    assert {line: found[line]["canonical"] for line in GOOD} == GOOD
    first = {answer["url"]: answer["verdict"] for answer in reversed(ran.lines)}
    assert {first[line.decode()] for line in GOOD} == {"admit"}
    assert found[b"\x80\x81"]["url"] == r"\x80\x81"
    assert "Traceback" not in ran.err


def test_bad_arguments_are_shown_safely(database: str) -> None:
    ran = usher("add", b"\x1b[2Jx\xff", "https://me:secret@x/", environment=to(database))
    assert ran.code == 3
    assert r"\x1b[2Jx\xff" in ran.out
    assert "secret" not in ran.out + ran.err
    lines = ran.out.splitlines()
    assert [line.split()[:2] for line in lines] == [["refuse", "bad_url"], ["refuse", "bad_url"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add",), "Give a URL"),
        (("add", "--file", "/nowhere/at/all"), "does not exist"),
        (("add", "x.com", "--json", "--jsonl"), "not both"),
        (("hosts", "recrawl"), "Give hosts"),
        (("hosts", "recrawl", "x.com", "--due"), "Give hosts"),
        (("hosts", "set", "x.com"), "Give an option to set"),
        (("hosts", "set", "x.com", "--scope", "any", "--reach", ".gov"), "--scope listed"),
        (("hosts", "set", "x.com", "--cadence", "sometimes"), "is not a cadence"),
        (("hosts", "add", "x.com", "--cadence", "default"), "is not a cadence"),
        (("hosts", "set", "x.com", "--max-pages", "0"), "not in the range"),
        (("hosts", "set", "x.com", "--max-depth", "deep"), "not a valid whole number"),
        (("hosts", "set", "x.com", "--crawl-delay", "slow"), "not a valid number"),
        (("hosts", "rules", "--max-pages", "default"), "not a valid whole number"),
        (("hosts", "set", "x.com", "--filter", "{"), "not JSON"),
        (("hosts", "set", "x.com", "--filter", '{"rule": "lenght", "most": 1}'), "Did you mean length"),
        (("hosts", "set", "x.com", "--filter", "{}", "--no-filters"), "Give only one of"),
        (("hosts", "add", "a b"), "is not a host"),
        (("hosts", "list", "--policy", "shy"), "Invalid value"),
        (("domain64", "show", "0xFF"), "tld must be from 1 to 127"),
    ],
)  # fmt: skip
def test_bad_usage_is_told_before_a_database_is_asked(words: tuple[str, ...], said: str) -> None:
    ran = usher(*words, environment=to("postgresql://127.0.0.1:1/nowhere"))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_dry_run_answers_the_same_and_changes_nothing(database: str) -> None:
    there = to(database)
    before = counted(database)
    urls = ["a.example/1", "a.example/2", "a.example/1", "b.invalid", "nonsense:"]
    tried = usher("add", "--dry-run", "--json", *urls, environment=there)
    assert counted(database) == before
    assert "nothing was changed" in tried.err
    assert usher("add", "--json", *urls, environment=there).json == tried.json
    assert usher("add", "--dry-run", "--full", "--pass", "a.example", environment=there).code == 0
    with psycopg.connect(database) as conn:
        (page,) = conn.execute("select count(*) from work.guestbook where priority = 0").fetchall()
    assert page == (0,)


def test_all_refused_is_exit_code_3_and_no_url_is_none(database: str) -> None:
    there = to(database)
    assert usher("add", "tel:1", "tel:2", environment=there).code == 3
    empty = usher("add", "-", environment=there, given=b"\n# only a comment\n\n")
    assert (empty.code, empty.out) == (0, "VERDICT  REASON  URLS\n")


@pytest.mark.seed("004.3", "004.28")
def test_full_knocks_and_passes(database: str) -> None:
    there = to(database)
    assert usher("add", "x.example/1", "x.example/2", environment=there).code == 0
    change(database, "update work.guestbook set state = 'crawled', next_fetch = now() + '1 day'")
    change(database, "update work.hosts set crawl_started = null, next_fetch = now() + '1 day'")
    refused = usher("add", "x.example/1", "x.example/3", environment=there)
    assert refused.code == 3
    assert [line.split()[1] for line in refused.out.splitlines()] == [
        "page_not_due",
        "host_not_due",
    ]
    assert "usher explain" in refused.err
    assert "single_pass" in usher("add", "--pass", "x.example/1", environment=there).out
    assert "host_not_due" in usher("add", "--full", "x.example", environment=there).out
    full = usher("add", "--full", "--pass", "--json", "x.example", environment=there)
    assert (full.json["reasons"], full.json["brought"]) == ({"full_pass": 1}, 2)


def test_a_large_file_streams(database: str, tmp_path: Path) -> None:
    there, file = to(database), tmp_path / "urls.txt"
    lines = [f"https://www.example.com/{number}" for number in range(20_000)]
    lines[7], lines[19_999] = "nonsense:", "https://www.example.com/1"
    file.write_text("\ufeff# urls\r\n\r\n" + "\r\n".join(lines))
    ran = usher("add", "--file", file, environment=there)
    assert ran.code == 0
    assert [line.split() for line in ran.out.splitlines()] == [
        ["VERDICT", "REASON", "URLS"],
        ["admit", "new_page", "19,998"],
        ["wait", "already_waiting", "1"],
        ["refuse", "unsupported_scheme", "1"],
    ]
    assert ran.err.startswith("20,000 URLs in ")
    again = usher("add", "--jsonl", "--file", file, environment=there)
    assert [answer["url"] for answer in again.lines] == lines
    shown = usher("hosts", "show", "www.example.com", environment=there)
    assert "pages       ≥ 10000 pending" in shown.out
    summed = usher("add", "--summary", "--json", "www.example.com/5", environment=there)
    assert summed.json == {"counts": {"admit": 0, "wait": 1, "refuse": 0},
                           "reasons": {"already_waiting": 1}, "brought": 0}  # fmt: skip


def test_a_line_without_end_takes_no_memory(database: str) -> None:
    given = b"https://x.example/" + 30_000_000 * b"x" + b"\nhttps://x.example/"
    ran = usher("add", "--jsonl", "-", environment=to(database), given=given)
    assert [answer["reason"] for answer in ran.lines] == ["too_long", "new_page"]
    assert len(ran.out) < 100_000


@contextmanager
def running(
    *words: str, dsn: str, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "usher", *words],
        env=clean(to(dsn)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_pipe_is_answered_while_it_is_open(database: str) -> None:
    with running("add", "--jsonl", "-", dsn=database) as process:
        assert process.stdin
        assert process.stdout
        for number in range(3):
            process.stdin.write(b"x.example/%d\n" % number)
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert answer["canonical"] == f"https://x.example/{number}"
            # Nothing is held while the pipe is silent: others can work on the same host.
            change(database, "set lock_timeout = '5s'; update work.hosts set policy_reason = 'x'")
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_bar_for_a_person_at_a_terminal(database: str, tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("".join(f"x.example/{number}\n" for number in range(6_000)))
    mine, its = pty.openpty()
    try:
        with running("add", "--file", str(tmp_path / "urls"), dsn=database, stderr=its) as process:
            assert process.stdout
            told = process.stdout.read()
            assert process.wait(60) == 0
        drawn = os.read(mine, 1_000_000)
    finally:
        os.close(mine)
        os.close(its)
    assert b"judged" in drawn
    assert b"admit    new_page  6,000" in told
    assert b"\x1b" not in told


def test_explain_an_unknown_url(database: str) -> None:
    before = counted(database)
    ran = usher("explain", "--json", "HTTP://new.example/x?utm_source=1", environment=to(database))
    assert ran.code == 0
    assert ran.json["canonical"] == "http://new.example/x"
    assert (ran.json["host"], ran.json["page"], ran.json["path"]) == (None, None, "/x")
    assert [(one["kind"], one["pass"], one["reason"], one["row"]) for one in ran.json["would"]] == [
        ("single", False, "new_page", 5),
        ("single", True, "single_pass", 2),
        ("full", False, "host_due", 8),
        ("full", True, "full_pass", 7),
    ]
    assert counted(database) == before
    assert "not registered" in usher("explain", "new.example", environment=to(database)).out


def test_explain_what_is_no_url(database: str) -> None:
    ran = usher("explain", "--json", "javascript:x", environment=to(database))
    assert (ran.code, ran.json["canonical"]) == (0, None)
    assert ran.json["refused"]["reason"] == "unsupported_scheme"
    assert {one["reason"] for one in ran.json["would"]} == {"unsupported_scheme"}
    told = usher("explain", b"https://x/\xff", environment=to(database))
    assert "bad_url" in told.out


def test_explain_what_happened_to_a_page(database: str) -> None:
    there = to(database)
    usher("add", "x.example/a", environment=there)
    assert "waits to be crawled" in usher("explain", "x.example/a", environment=there).out
    change(
        database,
        """update work.guestbook set state = 'error', failures = 3, gone = true, status = 503, content_type = 2,
        last_fetched = now() - interval '9 days', next_fetch = now() + interval '2 hours', cadence = '36 hours'""",
    )
    change(database, "update work.hosts set crawl_started = null, next_fetch = now() + '1 day'")
    told = usher("explain", "x.example/a", environment=there).out
    for words in (
        "not due until", "the last fetch failed", "failed 3 times in a row", "status 503",
        "(9 days ago)", "(in 2 hours)", "gone", "its own cadence: 1d12h", "row 4",
    ):  # fmt: skip
        assert words in told
    page = usher("explain", "--json", "x.example/a", environment=there).json["page"]
    assert (page["state"], page["failures"], page["scheme"]) == ("error", 3, "https")


@pytest.mark.parametrize("state", ["pending", "crawled"])
@pytest.mark.parametrize("clock", ["-1 day", "1 day"])
def test_explain_says_what_the_door_then_does(state: str, clock: str, database: str) -> None:
    there = to(database)
    usher("add", "x.example/a", environment=there)
    moment = f"now() + interval '{clock}'"
    change(database, f"update work.guestbook set state = '{state}', next_fetch = {moment}")
    change(database, f"update work.hosts set crawl_started = null, next_fetch = {moment}")
    told = usher("explain", "--json", "x.example/a", environment=there).json["would"]
    for would in told[2:]:  # the others are the door's own words
        options = ["--full", "--pass"] if would["pass"] else ["--full"]
        ran = usher("add", "--dry-run", "--json", *options, "x.example/a", environment=there)
        assert ran.json["answers"][0]["reason"] == would["reason"]


def test_explain_filters(database: str) -> None:
    there = to(database)
    usher("hosts", "add", "x.example", environment=there)
    drop = '{"name": "ids", "rule": "parameters", "drop": ["sid"]}'
    calendar = '{"name": "calendar", "rule": "path", "matches": "^/cal/"}'
    usher("hosts", "set", "x.example", "--filter", drop, "--filter", calendar, environment=there)
    kept = usher("explain", "--json", "x.example/a?sid=1&b=2", environment=there).json
    assert (kept["path"], kept["filtered"]) == ("/a?b=2", None)
    refused = usher("explain", "--json", "x.example/cal/1", environment=there).json
    assert refused["filtered"]["name"] == "calendar"
    assert {(one["reason"], one["row"]) for one in refused["would"]} == {("filtered", None)}
    assert "calendar refuses it" in usher("explain", "x.example/cal/1", environment=there).out
    assert usher("add", "x.example/cal/1", environment=there).code == 3


def test_the_door_needs_no_more_than_its_own_rights(database: str) -> None:
    mine = make_conninfo(database, user="usher_door")
    assert usher("add", "x.example", environment=to(mine)).code == 0
    assert usher("explain", "x.example", environment=to(mine)).code == 0
    reader = to(make_conninfo(database, user="usher_reader"))
    ran = usher("add", "y.example", environment=reader)
    assert ran.code == 4
    assert "Traceback" not in ran.err
    assert usher("hosts", "list", environment=reader).code == 0


def test_a_schema_behind_or_a_server_away(empty_database: str) -> None:
    ran = usher("add", "x.example", environment=to(empty_database))
    assert (ran.code, ran.out) == (6, "")
    assert "usher db migrate" in ran.err
    away = {**to("postgresql://127.0.0.1:1/db"), "USHER_CONNECT_TIMEOUT": "0"}
    assert usher("explain", "x.example", environment=away).code == 5


def test_the_embedded_server_is_made_ready(data: Path) -> None:
    start = time.monotonic()
    ran = usher("--data", data, "add", "https://example.com")
    assert (ran.code, ran.out.split()[:2]) == (0, ["admit", "new_page"]), ran.err
    assert time.monotonic() - start < 60


def test_help_needs_no_driver_and_no_rich() -> None:
    code = (
        "import sys, usher.cli.commands.add, usher.cli.commands.explain, usher.cli.commands.hosts,"
        " usher.cli.commands.domain64;"
        "print(sorted({'psycopg', 'rich', 'usher.door', 'usher.urls'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_has_examples() -> None:
    for words in (("add",), ("explain",), ("hosts",), ("hosts", "set"), ("domain64",)):
        assert "Examples:" in usher(*words, "--help").out
