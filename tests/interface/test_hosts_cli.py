"""Hosts and their numbers at the command line."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.db.fixtures import Server, clone
from support.processes.commands import Ran, usher

pytestmark = pytest.mark.soak  # a process for each command takes its time

# What Jemison published (research: jemison.md 1.5), with the labels of its longer names in its own order.
JEMISON = {
    "0100002400000000": "cloud.gov",
    "0100004A00000100": "www.fac.gov",
    "0100008700000100": "blogs.nasa.gov",
    "0100008700000500": "www.nasa.gov",
    "010000D800000900": "amarillo.www.va.gov",
    "0300000200000100": "my.goarmy.com",
    "0400000100000100": "www.cdse.edu",
}


@pytest.fixture
async def elsewhere(migrated: Server) -> AsyncIterator[str]:
    """A second database."""
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        yield dsn


def at(dsn: str, *words: str | Path) -> Ran:
    ran = usher(*words, environment={"DATABASE_URL": dsn})
    assert "Traceback" not in ran.err
    return ran


def host(dsn: str, name: str) -> Any:  # noqa: ANN401 - JSON
    return at(dsn, "hosts", "show", "--json", name).json


def test_add_and_list(database: str) -> None:
    added = at(
        database, "hosts", "add", "--json", "www.nasa.gov", "https://b.org/x", "localhost:81"
    )
    assert [(one["name"], one["hex"]) for one in added.json] == [
        ("www.nasa.gov", "0100000100000100"),
        ("b.org", "0600000100000000"),
        ("localhost:81", "7F00000100000100"),
    ]
    assert at(database, "hosts", "add", "b.org", "--cadence", "weekly").out.split()[-3:] == [
        "b.org", "432345568522534912", "0600000100000000",
    ]  # fmt: skip
    assert host(database, "b.org")["cadence"] == "weekly"
    names = [one["name"] for one in at(database, "hosts", "list", "--json").json]
    assert names == ["b.org", "localhost:81", "www.nasa.gov"]


def test_list_only_some(database: str) -> None:
    def listed(*words: str) -> list[str]:
        return [one["name"] for one in at(database, "hosts", "list", "--json", *words).json]

    at(database, "hosts", "add", "a.gov", "www.a.gov", "b.gov", "c.org")
    with psycopg.connect(database) as conn:
        conn.execute("update work.hosts set next_fetch = now() + '1 day' where name <> 'b.gov'")
    at(database, "hosts", "block", "c.org")
    assert listed("--due") == ["b.gov"]
    assert listed("--policy", "blocked") == ["c.org"]
    assert listed("--contains", "A.go") == ["a.gov", "www.a.gov"]
    assert listed("--under", ".gov") == ["a.gov", "b.gov", "www.a.gov"]
    assert listed("--under", "a.gov") == ["a.gov", "www.a.gov"]
    assert listed("--limit", "1", "--after", "a.gov") == ["b.gov"]
    table = at(database, "hosts", "list", "--limit", "2")
    assert [line.split()[0] for line in table.out.splitlines()] == ["HOST", "a.gov", "b.gov"]
    assert "--after b.gov" in table.err


def test_show(database: str) -> None:
    at(database, "add", "www.nasa.gov/a", "www.nasa.gov/b")
    told = at(database, "hosts", "show", "www.nasa.gov").out
    for words in ("www.nasa.gov, open", "72057598332895488, hex 0100000100000100",
                  "a crawl is open since", "monthly (default)", "2 pending"):  # fmt: skip
        assert words in told
    shown = host(database, "https://www.nasa.gov/whatever")
    assert {"domain64": 72057598332895488, "hex": "0100000100000100", "scope": "host",
            "cadence_of": "house", "pages": {"pending": 2}}.items() <= shown.items()  # fmt: skip
    assert shown["crawl_started"].endswith("+00:00")
    assert {"known": 2, "full": False, "max_pages": 1_000_000, "max_pages_of": "house", "max_depth": 20,
            "max_depth_of": "house"}.items() <= shown.items()  # fmt: skip


def test_limits(database: str) -> None:
    at(database, "hosts", "add", "a.gov", "b.gov")
    ran = at(database, "hosts", "set", "a.gov", "--max-pages", "2", "--max-depth", "0",
             "--cadence", "daily", "--crawl-delay", "2")  # fmt: skip
    assert ran.code == 0, ran.err
    refused = at(database, "add", "a.gov/1", "a.gov/2", "a.gov/3").out.splitlines()[2]
    assert refused.split()[:2] == ["refuse", "host_full"]
    assert refused.endswith("the host already has its maximum of 2 pages")
    told = at(database, "hosts", "show", "a.gov").out
    for words in ("limits      at most 2 pages\n", "up to 0 clicks from", "2 pending\n",
                  " 2 of at most 2; new pages are refused"):  # fmt: skip
        assert words in told
    shown = host(database, "a.gov")
    assert (shown["full"], shown["max_pages_of"], shown["max_depth_of"]) == (True, "host", "host")
    explained = at(database, "explain", "a.gov/3").out
    would = [line for line in explained.splitlines() if line.startswith("  single")]
    assert all("host_full" in line for line in would)
    assert [line.split()[:2] for line in would] == [
        ["single", "refuse"],
        ["single,", "pass"],
    ]
    at(database, "hosts", "rules", "--max-pages", "3", "--max-depth", "7")
    ran = at(database, "hosts", "set", "a.gov", "--max-pages", "default", "--max-depth", "default",
             "--cadence", "default", "--crawl-delay", "default")  # fmt: skip
    assert ran.code == 0, ran.err
    shown = host(database, "a.gov")
    assert (shown["max_pages"], shown["max_depth"], shown["crawl_delay"]) == (3, 7, None)
    assert {shown[f"{name}_of"] for name in ("cadence", "max_pages", "max_depth")} == {"house"}
    assert at(database, "add", "a.gov/3").code == 0
    assert "new_page" not in at(database, "add", "a.gov/4").out


def test_an_unknown_host_is_exit_code_3_with_the_nearest_name(database: str) -> None:
    at(database, "hosts", "add", "www.nasa.gov", "example.com")
    for words in (
        ("show", "ww.nasa.gov"),
        ("set", "www.nasa.gov", "ww.nasa.gov", "--cadence", "daily"),
        ("block", "www.nasa.gov", "ww.nasa.gov"),
        ("recrawl", "www.nasa.gov", "ww.nasa.gov"),
    ):
        ran = at(database, "hosts", *words)
        assert (ran.code, ran.out) == (3, "")
        assert "Did you mean www.nasa.gov?" in ran.err
    shown = host(database, "www.nasa.gov")
    assert (shown["policy"], shown["cadence_of"], shown["pages"]) == ("open", "house", {})
    assert "usher hosts add qqqq.zz" in at(database, "hosts", "show", "qqqq.zz").err


def test_set(database: str, tmp_path: Path) -> None:
    at(database, "hosts", "add", "a.gov", "www.esa.int", "b.mil")
    file = tmp_path / "filters.json"
    file.write_text(
        '[{"name": "short", "rule": "length", "most": 20}, {"name": "media", "off": true}]'
    )
    ran = at(
        database, "hosts", "set", "a.gov", "b.mil", "--cadence", "36h", "--crawl-delay", "2.5", "--adaptive",
        "--reach", ".gov", "--reach", "esa.int", "--reach", "www.esa.int", "--filters", file,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    for name in ("a.gov", "b.mil"):
        shown = host(database, name)
        assert (shown["cadence"], shown["crawl_delay"], shown["adaptive"]) == ("1d12h", 2.5, True)
        assert (shown["scope"], shown["reach"]) == ("listed", [".gov", "esa.int"])
        assert [one["name"] for one in shown["filters"]] == ["short", "media"]
    told = at(database, "hosts", "show", "a.gov").out
    assert "short: refuses paths of more than 20 characters" in told
    assert "media: off" in told
    at(database, "hosts", "set", "a.gov", "--no-filters", "--no-adaptive", "--scope", "domain")
    shown = host(database, "a.gov")
    assert (shown["filters"], shown["adaptive"], shown["scope"]) == ([], False, "domain")
    assert shown["cadence"] == "1d12h"


def test_a_reach_without_a_number_is_an_error(database: str) -> None:
    at(database, "hosts", "add", "a.gov")
    for name in (".nosuch", "nosuch.gov", "www.a.gov"):
        ran = at(database, "hosts", "set", "a.gov", "--reach", name)
        assert (ran.code, ran.out) == (3, "")
        assert "→" in ran.err
    assert host(database, "a.gov")["scope"] == "host"


def test_block_pause_open(database: str) -> None:
    at(database, "hosts", "add", "a.gov", "b.gov")
    assert at(database, "hosts", "block", "a.gov", "b.gov", "--reason", "only spam").code == 0
    ran = at(database, "add", "--full", "--pass", "a.gov/x")
    assert (ran.code, ran.out.split()[:2]) == (3, ["refuse", "host_blocked"])
    assert "only spam" in ran.out
    at(database, "hosts", "pause", "a.gov")
    assert "host_paused" in at(database, "add", "a.gov/x").out
    assert "before the table" in at(database, "explain", "a.gov/x").out
    at(database, "hosts", "open", "a.gov")
    assert at(database, "add", "a.gov/x").code == 0
    assert (host(database, "a.gov")["policy"], host(database, "a.gov")["policy_reason"]) == (
        "open",
        "",
    )


@pytest.mark.seed("003.22", "004.22")
def test_recrawl(database: str) -> None:
    at(database, "add", "a.gov/1", "a.gov/2", "b.gov/1")
    with psycopg.connect(database) as conn:
        conn.execute("update work.guestbook set state = 'crawled'")
        conn.execute("update work.hosts set crawl_started = null, next_fetch = now() + '1 day'")
    refused = at(database, "hosts", "recrawl", "a.gov")
    assert (refused.code, refused.out.split()[:2]) == (3, ["refuse", "host_not_due"])
    none = at(database, "hosts", "recrawl", "--due")
    assert (none.code, none.out) == (0, "")
    assert "No host is due." in none.err
    passed = at(database, "hosts", "recrawl", "a.gov", "--pass", "--json").json
    assert (passed["reasons"], passed["brought"]) == ({"full_pass": 1}, 2)
    with psycopg.connect(database) as conn:
        conn.execute("update work.hosts set next_fetch = now() - interval '1 day'")
        conn.execute("update work.guestbook set next_fetch = now() - interval '1 day'")
    nightly = at(database, "hosts", "recrawl", "--due", "--json").json
    assert [one["canonical"] for one in nightly["answers"]] == ["https://b.gov/"]
    assert (nightly["reasons"], nightly["brought"]) == ({"host_due": 1}, 1)


def test_default_rules(database: str) -> None:
    rules = at(database, "hosts", "rules", "--json").json
    assert (rules["cadence"], rules["max_pages"], rules["max_depth"]) == ("monthly", 1_000_000, 20)
    calendar = {"name": "calendar", "rule": "path", "matches": "^/cal/"}
    ran = at(database, "hosts", "rules", "--cadence", "weekly", "--filter", json.dumps(calendar))
    limits = (
        "at most 1,000,000 pages per host, new pages up to 20 clicks from the start of the crawl"
    )
    assert ran.out.splitlines() == [
        "cadence     weekly",
        f"limits      {limits}",
        "filters     calendar: refuses paths that match ^/cal/",
    ]
    assert at(database, "hosts", "rules", "--json").json == {
        "cadence": "weekly",
        "max_pages": 1_000_000,
        "max_depth": 20,
        "filters": [calendar],
    }
    assert "calendar" in at(database, "add", "a.gov/cal/1").out
    assert "(default)\n" in at(database, "hosts", "show", "a.gov").out
    assert at(database, "hosts", "rules", "--no-filters").out.endswith("filters     none\n")
    assert at(database, "hosts", "rules", "--filter", '"x"').code == 2


def test_numbers_shown(database: str) -> None:
    at(database, "hosts", "add", "www.nasa.gov", "blogs.nasa.gov", "localhost")
    by_name = at(database, "domain64", "show", "--json", "blogs.nasa.gov").json
    for number in ("72057598332895744", "0100000100000200", "100000100000200", "0x100000100000200"):
        assert at(database, "domain64", "show", "--json", number).json == by_name
    assert by_name == {
        "kind": "host",
        "domain64": 72057598332895744,
        "hex": "0100000100000200",
        "host": "blogs.nasa.gov",
        "tld": {"number": 1, "name": "gov"},
        "domain": {"number": 1, "name": "nasa"},
        "subdomain": {"number": 2, "name": "blogs"},
        "range": {"start": "72057598332895744", "end": "72057598332896000"},
    }
    gov = at(database, "domain64", "show", "--json", ".gov").json
    assert (gov["kind"], gov["range"]["end"]) == ("tld", "144115188075855872")
    nasa = at(database, "domain64", "show", "--json", "nasa.gov").json
    assert (nasa["kind"], nasa["host"], nasa["domain"]["name"]) == ("domain", None, "nasa")
    free = at(database, "domain64", "show", "0100000900000300")
    assert (free.code, "no host has this number" in free.out) == (0, True)
    assert "01:000001:000002:00" in at(database, "domain64", "show", "blogs.nasa.gov").out
    assert "domain      1, localhost" in at(database, "domain64", "show", "localhost").out
    unknown = at(database, "domain64", "show", "blog.nasa.gov")
    assert (unknown.code, "Did you mean blogs.nasa.gov?" in unknown.err) == (3, True)


@pytest.mark.parametrize("form", ["text", "json"])
def test_exported_numbers_come_back_the_same(
    form: str, database: str, elsewhere: str, tmp_path: Path
) -> None:
    names = [
        "www.bbc.co.uk",
        "bbc.co.uk",
        "a.de",
        "x.a.de:8080",
        "10.0.0.1",
        "[::1]",
        "www.nasa.gov",
    ]
    at(database, "hosts", "add", *names)
    words = ("domain64", "export", *(["--json"] if form == "json" else []))
    exported = at(database, *words).out
    (tmp_path / "numbers").write_text(exported)
    assert at(elsewhere, *words).out == ("[]\n" if form == "json" else "")
    tried = at(elsewhere, "domain64", "import", "--dry-run", "--json", tmp_path / "numbers")
    assert (tried.json["new"], at(elsewhere, "domain64", "export").out) == (len(names), "")
    for new, known in ((len(names), 0), (0, len(names))):
        ran = at(elsewhere, "domain64", "import", "--json", tmp_path / "numbers")
        assert ran.json == {
            "dry_run": False,
            "new": new,
            "known": known,
            "refused": 0,
            "objections": [],
        }
    assert at(elsewhere, *words).out == exported
    one, other = (
        [host["hex"] for host in at(dsn, "hosts", "add", "--json", "b.de", "news.bbc.co.uk").json]
        for dsn in (database, elsewhere)
    )
    assert one == other


def jemisons(tmp_path: Path) -> Path:
    """A file as Jemison generates it."""
    tables: dict[str, Any] = {"TLDs": ["gov", "com", "edu"]}
    for tld in tables["TLDs"]:
        there = {number: name for number, name in JEMISON.items() if name.endswith(tld)}
        tables[tld] = {
            "Domain64s": list(there),
            "Domain64ToFQDN": there,
            "FQDNToDomain64": {name: number for number, name in there.items()},
            "Schedules": dict.fromkeys(there, "monthly"),
        }
    (tmp_path / "domain64.json").write_text(json.dumps(tables))
    return tmp_path / "domain64.json"


def test_jemisons_numbers_are_taken_as_they_are(database: str, tmp_path: Path) -> None:
    file = jemisons(tmp_path)
    ran = at(database, "domain64", "import", "--reverse-labels", file)
    assert (ran.code, ran.out, ran.err) == (0, "", "7 new, 0 known, 0 refused\n")
    exported = dict(
        line.split("\t") for line in at(database, "domain64", "export").out.splitlines()
    )
    assert exported == {**JEMISON, "010000D800000900": "www.amarillo.va.gov"}
    assert (
        at(database, "domain64", "show", "--json", "blogs.nasa.gov").json["domain64"]
        == 72058173858513152
    )
    added = at(database, "hosts", "add", "--json", "science.nasa.gov", "new.gov", "va.gov").json
    assert [one["hex"] for one in added] == [
        "0100008700000600",
        "010000D900000000",
        "010000D800000000",
    ]


def test_the_order_of_labels_is_asked_for(database: str, tmp_path: Path) -> None:
    ran = at(database, "domain64", "import", jemisons(tmp_path))
    assert ran.code == 0
    assert "--reverse-labels" in ran.err
    assert "amarillo.www.va.gov" in at(database, "domain64", "export").out


def test_nothing_is_taken_of_a_line_that_conflicts(database: str, tmp_path: Path) -> None:
    at(database, "hosts", "add", "www.a.gov", "b.gov", "c.uk")
    before = at(database, "domain64", "export").out
    lines = {
        "0100000100000200\twww.a.gov": "the host www.a.gov has the number 0100000100000100 here",
        "0100000100000100\tw.a.gov": "this number of a host is www.a.gov here",
        "0100000900000100\tw.a.gov": "the domain a has the number 1 here",
        "0100000200000100\tw.z.gov": "this number of a domain is b here",
        "0700000300000100\tw.z.de": "this number of a TLD is uk here",
        "0900000300000100\tw.z.uk": "the TLD uk has the number 7 here",
        "7F00000300000100\tw.z.uk": "the TLD uk has the number 7 here",
        "0100000300000000\tw.z.gov": "subdomain 0 is for a domain itself",
        "0100000300000100\tz.gov": "subdomain 0 is for a domain itself",
        "0100000300000101\tw.z.gov": "a reserved byte of 0",
        "0100000300000100\tlocalhost:1": "a name without a TLD is under 127",
        "FF00000300000100\tw.z.gov": "tld must be from 1 to 127",
        "nonsense\tw.z.gov": "not 1 to 16 hexadecimal digits",
        "0100000300000100\ta b": "not a host name",
        "0100000300000100": "not a host name",
    }
    (tmp_path / "numbers").write_text("\n".join(lines))
    ran = at(database, "domain64", "import", tmp_path / "numbers")
    assert ran.code == 3
    told = dict(zip(lines, ran.out.splitlines(), strict=True))
    assert [line for line, reason in lines.items() if reason not in told[line]] == []
    assert "0 new, 0 known, 15 refused" in ran.err
    assert at(database, "domain64", "export").out == before
    with psycopg.connect(database) as conn:
        assert conn.execute("select count(*) from work.domain").fetchall() == [(3,)]
        assert conn.execute("select max(code) from work.tld where code < 127").fetchall() == [(7,)]


def test_the_other_lines_are_taken_and_the_first_of_two_wins(database: str, tmp_path: Path) -> None:
    lines = [
        "0100000900000100\ta.x.gov", "0100000900000100\tb.x.gov", "", "# a comment",
        "0C00000100000000\tx.zz", "0D00000100000000\ty.zz",
    ]  # fmt: skip
    (tmp_path / "numbers").write_text("\n".join(lines))
    ran = at(database, "domain64", "import", "--json", tmp_path / "numbers")
    assert (ran.code, ran.json["new"], ran.json["refused"]) == (3, 2, 2)
    assert [one["place"] for one in ran.json["objections"]] == ["line 2", "line 6"]
    assert (
        at(database, "domain64", "export").out
        == "0100000900000100\ta.x.gov\n0C00000100000000\tx.zz\n"
    )


def test_a_file_that_is_none_of_these(database: str, tmp_path: Path) -> None:
    for text in ("{}", "[1]", '{"gov": {}}', "{", '[{"hex": 1}]'):
        (tmp_path / "numbers").write_text(text)
        ran = at(database, "domain64", "import", tmp_path / "numbers")
        assert (ran.code, ran.out) == (2, "")
        assert "→" in ran.err
