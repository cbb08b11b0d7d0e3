"""What follows a poll: with commands, and with jobs of real processes."""

import subprocess

import psycopg
import pytest

from support.feeds.polling import item, rss
from support.processes.cli_fixtures import Desk
from support.processes.killable import eventually
from support.processes.stack import USHER, ask, open_stack
from support.site.website import Response, Website

SENTENCE = "The usher shows every guest to a seat in a row, and then the curtain goes up. "
CONFIG = 'allow_private = "127.0.0.0/8"\njob_lease = 5\n'


def page(name: str) -> Response:
    return Response(
        f"<html><body><nav>Imprint</nav><article><p>{name} {SENTENCE * 6}</p></article></body></html>".encode()
    )


def test_pages_and_cleaning_with_commands(desk: Desk, site: Website) -> None:
    items = [
        item("One", site.add("/1", page("lighthouse")), "short"),
        item("Two", "", "<b>two</b>"),
    ]
    url = site.add("/feed", rss(*items))
    number = desk.usher("feeds", "add", "--partial", "--clean", "--no-knock", url).out.strip()
    task = desk.usher("tasks", "show", f"clean-{number}", "--json").json
    assert (task["state"], task["type"], task["args"]) == ("enabled", "clean", [number])
    assert desk.usher("feeds", "poll", number).code == 0
    shown = desk.usher("feeds", "show", number)
    assert "0 fetched, 1 wanted, 0 given up" in shown.out
    assert "2 items still to be cleaned" in shown.out
    assert desk.usher("feeds", "clean", "--json").json[0]["cleaned"] == 2
    assert desk.usher("feeds", "set", number, "--learn", "--threshold", "0.5").code == 0
    told = desk.usher("feeds", "show", number, "--json").json
    assert told["cleaning"]["threshold"] == 0.5
    assert (told["pages"]["wanted"], told["cleaning"]["uncleaned"]) == (1, 2)
    desk.usher("feeds", "set", number, "--no-clean", "--full")
    assert desk.usher("tasks", "show", f"clean-{number}", "--json").json["state"] == "disabled"
    assert desk.usher("feeds", "set", number).code == 2
    assert list(desk.directory.iterdir()) == [], "it leaves nothing where one is"


def test_items_with_commands(desk: Desk, site: Website) -> None:
    evil = "<p>velvet \x1b[2J<script>x</script>seats</p>".replace("\x1b", "&#x9b;")
    url = site.add("/feed", rss(*(item(f"t{n}", f"https://e.org/{n}", evil) for n in range(3))))
    number = desk.usher("feeds", "add", "--no-knock", url).out.strip()
    desk.usher("feeds", "poll", number)
    first = desk.usher("items", "list", "--limit", "2", "--json").json
    rest = desk.usher("items", "list", "--after", first[-1]["place"], "--json").json
    assert len({one["id"] for one in first + rest}) == 3
    found = desk.usher("items", "search", "velvet -nothing", "--feed", number, "--no-copies")
    assert found.out.count("https://e.org/") == 3
    assert desk.usher("items", "search", "zebra").code == 3
    shown = desk.usher("items", "show", str(first[0]["id"]))
    assert "velvet" in shown.out
    assert "\x9b" not in shown.out
    whole = desk.usher("items", "show", str(first[0]["id"]), "--json").json
    assert (whole["feed"], whole["copies"], whole["page"]) == (int(number), [], False)
    assert desk.usher("items", "list", "--after", "x").code == 2
    assert list(desk.directory.iterdir()) == []


@pytest.mark.soak
def test_pages_and_cleaning_with_jobs() -> None:
    """Manager and scheduler alone poll the feed, fetch its pages and clean its items."""
    with Website() as site, open_stack(CONFIG) as (stack, lease, directory):
        names = ("one", "two", "three")
        items = [item(name, site.add(f"/{name}", page(name)), "short") for name in names]
        url = site.add("/feed", rss(*items))
        command = [*USHER, "feeds", "add", "--no-knock", "--partial", "--clean", url]
        subprocess.run(command, env=stack.environment, check=True, stdout=stack.log)
        with psycopg.connect(lease.dsn) as conn:
            conn.execute("update control.resource set interval = '0'")
        stack.start("manager", *USHER, "manager")
        stack.start("scheduler", *USHER, "scheduler")
        done = "select count(*) from feeds.feed_item where page and content_clean like '%usher%'"
        log = directory / "log"
        assert eventually(lambda: ask(lease.dsn, done) == [(3,)], 60), log.read_text()[-3000:]
        found = "select count(*) from feeds.feed_item_text where words @@ 'curtain' and not words @@ 'imprint'"
        assert eventually(lambda: ask(lease.dsn, found) == [(3,)], 30)
        assert all(len(site.asked(f"/{name}")) == 1 for name in names)
        assert stack.stop() == [0, 0]
