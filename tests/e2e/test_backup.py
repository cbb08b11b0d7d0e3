"""`usher backup` as an operator uses it: during a crawl, interrupted, restored elsewhere or over newer data."""

import json
import os
import random
import signal
import subprocess
import time
import urllib.error
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.db.fixtures import wait_stopped
from support.processes.commands import clean
from support.processes.killable import eventually
from support.processes.pseudo_terminal import TerminalRun, at_terminal
from support.processes.stack import USHER
from support.processes.terminal import Show, show
from support.s3.backup_places import BackupBucket, BackupDirectory, BackupPlace
from support.s3.server import OPERATOR, S3Server
from support.site.hostile import links, page
from support.site.website import Website
from usher.db.embedded.server_lease import lease_server

PAGES, LINKS_PER_PAGE = 300, 10
SOAK_PAGES = int(os.environ.get("BACKUP_PAGES", "2000"))
# A backup in a bucket has the same files as one in a directory, which is tested with more pages.
BUCKET_PAGES = int(os.environ.get("BACKUP_PAGES", PAGES))
SHARE = float(os.environ.get("BACKUP_SHARE", "0.1"))  # of the pages, crawled when the backup begins
STEP_SECONDS = 120 + SOAK_PAGES / 50
CRAWL_TIMEOUT_SECONDS = 900 + SOAK_PAGES / 10
CRAWL_SECONDS = 60  # at least, so that the backup is created meanwhile, also on a busy machine
# A restore starts a new incarnation: these tables are about the index servers of the present one.
RESTORE_TABLES = {
    "work.unrestored", "work.retirement", "work.incarnation", "work.placement", "work.server_load",
    "work.settings",
}  # fmt: skip
TABLES = """
select schemaname || '.' || tablename from pg_tables
where schemaname in ('work', 'control', 'feeds', 'multimatch') order by 1
"""
DIGEST = "select count(*), md5(coalesce(string_agg(t::text, ',' order by t::text), '')) from {} t"


def site(pages: int = PAGES, version: int = 1) -> Website:
    """Pages that the crawler finds one after the other, each with a word of its own."""
    web = Website()
    for number in range(pages):
        add_page(web, number, pages, version)
    return web


def add_page(web: Website, number: int, pages: int, version: int) -> None:
    first = LINKS_PER_PAGE * number + 1
    below = range(first, min(first + LINKS_PER_PAGE, pages))
    text = f"<p>The seat{number}x of the house, version{version}n{number}x.</p>"
    numbers = random.Random(number)  # noqa: S311 - the same words each time
    filler = " ".join(f"word{numbers.randrange(5_000)}" for _ in range(300))
    body = f"{text}<p>{filler}</p>{links(*(f'/{i}' for i in below))}"
    web.add(f"/{number or ''}", page(f"Seat {number}", body))


def run(data: Path, *words: str, seconds: float = STEP_SECONDS) -> TerminalRun:
    return at_terminal("--data", str(data), *words, seconds=seconds)


def run_well(data: Path, *words: str, seconds: float = STEP_SECONDS) -> str:
    ended = run(data, *words, seconds=seconds)
    assert ended.code == 0, ended.text
    return ended.text


@contextmanager
def connection(data: Path) -> Iterator[psycopg.Connection[Any]]:
    with lease_server(data) as lease, psycopg.connect(lease.dsn) as conn:
        yield conn


def crawled_paths(data: Path) -> set[str]:
    query = "select path from work.guestbook where state = 'crawled'"
    with connection(data) as conn:
        return {path for (path,) in conn.execute(query)}


def digests(data: Path) -> dict[str, Any]:
    """The number of rows of each table, and a checksum of them."""
    with connection(data) as conn:
        names = [name for (name,) in conn.execute(TABLES)]
        return {
            name: conn.execute(DIGEST.format(name).encode()).fetchone()
            for name in names
            if name not in RESTORE_TABLES
        }


def answers(stack: Show, pages: int) -> dict[str, Any]:
    """Complete answers to some queries: totals, and the URLs in their order."""
    queries = ["house", "seat7x", f"seat{pages - 1}x", "word5 word36", "version1n3x"]
    result: dict[str, Any] = {}
    for query in queries:
        answer = stack.ask(query)
        assert not answer["partial"], answer
        result[query] = (answer["total"], [hit["url"] for hit in answer["results"]])
    return result


def ask(stack: Show, query: str) -> tuple[int, bool]:
    """The number of results, and whether the answer is partial; a server that cannot answer yet (503) has none."""
    try:
        answer = stack.ask(query)
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return 0, True
    return answer["total"], answer["partial"]


def is_complete(stack: Show, pages: int) -> bool:
    return ask(stack, "house") == (pages, False)


def kill_in_the_middle(data: Path, place: BackupPlace, name: str) -> dict[str, Any]:
    """Start a backup and kill it once it has copied files; return what it stored."""
    process = subprocess.Popen(
        [*USHER, "--data", str(data), "backup", "create", place.address(name)],
        env=clean({}),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    assert eventually(lambda: len(place.stored(name)) > 1, STEP_SECONDS)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not place.is_complete(name)
    return place.stored(name)


def stop(stack: Show) -> None:
    stack.ctrl_c()
    assert stack.ends() == 0, stack.logs
    wait_stopped(stack.data)


def requested(web: Website, since: int) -> list[str]:
    return [request.path for request in web.log[since:] if request.path != "/robots.txt"]


def crawl_words(web: Website, delay: float = 0) -> tuple[str, ...]:
    return ("crawl", "--delay", str(delay), "--then", "serve", web.url("/"))


def check_backup_and_restore(data: Path, pages: int, place: BackupPlace) -> None:
    """Back up during a crawl with a kill, restore elsewhere, continue there, back up again and compare."""
    target, first = data.with_name("restored"), place.address("first")
    with site(pages) as web:
        with show(data, *crawl_words(web, CRAWL_SECONDS / pages), terminal=True) as stack:
            assert eventually(lambda: len(web.log) > SHARE * pages, CRAWL_TIMEOUT_SECONDS), (
                stack.logs
            )
            assert eventually(lambda: len(list(data.glob("index/*/chunks/*/*"))) > 1, STEP_SECONDS)
            before = kill_in_the_middle(data, place, "first")
            began = time.monotonic()
            text = run_well(data, "backup", "create", first, seconds=600)
            report(f"create during the crawl: {time.monotonic() - began:.1f} s", text)
            after = place.stored("first")
            repeated = [path for path, mark in before.items() if after.get(path, mark) != mark]
            assert len(repeated) <= place.max_repeated
            stack.process.send_signal(signal.SIGTERM)
            stack.ends()
        check_restored_during_crawl(web, first, target, pages)
        second = place.address("second")
        compare_complete_backup(web, target, second, data.with_name("moved") / "data", pages)


def check_restored_during_crawl(web: Website, backup: str, target: Path, pages: int) -> None:
    """Pages that the backup has are not fetched again, and the crawl continues to its end."""
    began = time.monotonic()
    text = run_well(target, "backup", "restore", str(backup), seconds=600)
    report(f"restore: {time.monotonic() - began:.1f} s", text)
    crawled, since = crawled_paths(target), len(web.log)
    assert 0 < len(crawled) < pages
    report(f"pages in the backup: {len(crawled)} of {pages}")
    began = time.monotonic()
    with show(target, *crawl_words(web), terminal=True) as stack:
        is_done = eventually(
            lambda: is_up(stack) and is_complete(stack, pages), CRAWL_TIMEOUT_SECONDS
        )
        assert is_done, stack.logs
        report(f"complete again: {time.monotonic() - began:.1f} s")
        stack.process.send_signal(signal.SIGTERM)
        stack.ends()
    wait_stopped(target)
    assert crawled.isdisjoint(requested(web, since))


def is_up(stack: Show) -> bool:
    return "Ctrl-C to stop" in stack.said


def compare_complete_backup(
    web: Website, data: Path, backup: str, target: Path, pages: int
) -> None:
    """Rows, files and answers of a finished crawl are the same after a restore on other ports."""
    since = len(web.log)
    with show(data, "up", terminal=True) as stack:
        stack.is_up()
        assert eventually(lambda: is_complete(stack, pages), STEP_SECONDS), stack.logs
        expected = answers(stack, pages)
        began = time.monotonic()
        text = run_well(data, "backup", "create", str(backup), seconds=600)
        report(f"create after the crawl: {time.monotonic() - began:.1f} s", text)
        run_well(data, "backup", "verify", str(backup))
        summary = json.loads(run_well(data, "-q", "backup", "verify", "--json", str(backup)))
        assert (summary["missing"], summary["damaged"]) == (0, [])
        ports = json.loads((data / "ports.json").read_text())
        report(run_well(target, "backup", "restore", str(backup), seconds=600))
        began = time.monotonic()
        with show(target, "up", terminal=True) as moved:  # the ports of the first are in use
            moved.is_up()
            assert eventually(lambda: is_complete(moved, pages), STEP_SECONDS), moved.logs
            report(f"complete on other ports: {time.monotonic() - began:.1f} s")
            assert answers(moved, pages) == expected
            assert json.loads((target / "ports.json").read_text())["front"] != ports["front"]
            stop(moved)
        stop(stack)
    compare_rows(data, backup.replace("second", "third"), target)
    assert requested(web, since) == []


def compare_rows(data: Path, backup: str, target: Path) -> None:
    """All rows of all tables come back; nothing runs, so that nothing changes them."""
    run_well(data, "backup", "create", backup)
    expected = digests(data)
    run_well(target, "backup", "restore", backup, "--replace")
    assert digests(target) == expected
    roles = run(target, "db", "roles", "check")
    assert roles.code == 0, roles.text


@pytest.fixture(autouse=True)
def stopped_servers(data: Path) -> Iterator[None]:
    """Wait until no server runs beside the data directory, which is removed then."""
    yield
    wait_stopped(data.parent)


def report(*lines: str) -> None:
    print(*lines, sep="\n")  # noqa: T201 - the issue asks for figures


@pytest.mark.soak
def test_a_backup_during_a_crawl_restores_elsewhere(data: Path) -> None:
    check_backup_and_restore(data, PAGES, BackupDirectory(data.with_name("backups")))


@pytest.mark.soak
def test_a_backup_of_many_pages_during_a_crawl(data: Path) -> None:
    check_backup_and_restore(data, SOAK_PAGES, BackupDirectory(data.with_name("backups")))


@pytest.mark.soak
def test_a_backup_in_a_bucket_during_a_crawl(
    data: Path, own_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_s3_server.create_bucket("backups")
    monkeypatch.setenv("AWS_ENDPOINT_URL", own_s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OPERATOR.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OPERATOR.secret_key)
    check_backup_and_restore(data, BUCKET_PAGES, BackupBucket(own_s3_server, "backups"))


def wrong_answers(stack: Show, words: Iterable[str]) -> list[str]:
    """Words that a complete answer lacks."""
    return [word for word in words if ask(stack, word) == (0, False)]


@pytest.mark.soak
def test_an_older_backup_replaces_newer_data(data: Path) -> None:
    pages, backup = 60, data.with_name("backup")
    old = [f"version1n{number}x" for number in range(pages)]
    with site(pages) as web, show(data, *crawl_words(web), terminal=True) as stack:
        stack.is_up()
        run_well(data, "backup", "create", str(backup))
        for number in range(pages):
            add_page(web, number, pages, version=2)
        run_well(data, "hosts", "recrawl", f"127.0.0.1:{web.port}", "--pass")
        assert eventually(lambda: not stack.ask("version1n7x")["total"], STEP_SECONDS), stack.logs
        refused = run(data, "backup", "restore", str(backup), "--replace")
        assert refused.code == 3, refused.text
        assert f"Usher is already running in {data} (pid {stack.process.pid})." in refused.text
        stop(stack)
        refused = run(data, "backup", "restore", str(backup))
        assert refused.code == 2, refused.text
        assert "has data already" in refused.text
        assert "add --replace" in refused.text
        assert len(crawled_paths(data)) == pages
        run_well(data, "backup", "restore", str(backup), "--replace")
        since = len(web.log)
        with show(data, "up", terminal=True) as again:
            again.is_up()
            lacking: list[str] = []

            def all_old() -> bool:
                lacking.extend(wrong_answers(again, old))
                return is_complete(again, pages) and all(
                    ask(again, word) == (1, False) for word in old
                )

            assert eventually(all_old, STEP_SECONDS), again.logs
            assert lacking == []
            stop(again)
        assert requested(web, since) == []


@pytest.mark.soak
def test_usher_does_not_start_with_half_a_restore(data: Path) -> None:
    """The database is restored, and then the process is killed: the same command completes the restore."""
    pages, backup, target = 20, data.with_name("backup"), data.with_name("restored")
    with site(pages) as web:
        with show(data, *crawl_words(web)) as stack:
            stack.is_up()
            stop(stack)
        run_well(data, "backup", "create", str(backup))
        process = subprocess.Popen(
            [*USHER, "--data", str(target), "backup", "restore", str(backup)],
            env=clean({}),
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        marker = target / "restore.unfinished"
        assert eventually(marker.exists, STEP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert marker.exists()
        refused = run(target, "up")
        assert refused.code == 3, refused.text
        assert f"The restore of {backup} into {target} did not finish." in refused.text
        assert f"usher --data {target} backup restore {backup}" in refused.text
        run_well(target, "backup", "restore", str(backup))
        with show(target, "up") as stack:
            stack.is_up()
            assert eventually(lambda: is_complete(stack, pages), STEP_SECONDS), stack.logs
            stop(stack)


@pytest.mark.soak
def test_a_task_creates_backups(data: Path) -> None:
    """A job of `usher up` has no password in its environment, and its own login may not read everything."""
    backup, pages = data.with_name("backup"), 5
    command = (*USHER, "backup", "create", str(backup))
    with site(pages) as web, show(data, "crawl", "--jobs", *crawl_words(web)[1:]) as stack:
        stack.is_up()
        words = ("--name", "nightly-backup", "--cron", "0 4 * * *", "--type", "backup", "--")
        run_well(data, "tasks", "add", *words, *command)
        run_well(data, "tasks", "run", "nightly-backup")
        is_written = eventually((backup / "SHA256SUMS").exists, STEP_SECONDS)
        assert is_written, (run(data, "jobs", "log").text, stack.logs)
        summary = json.loads(run_well(data, "-q", "backup", "verify", "--json", str(backup)))
        assert summary["missing"] == 0
        stack.process.send_signal(signal.SIGTERM)
        stack.ends()
