"""Removal with real processes: every front-end hides a page at once, and its text leaves every file."""

import gzip
import http.client
import json
import shutil
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
import tantivy

from support.index.stack import Stack, running_stack
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.pseudo_terminal import at_terminal
from support.processes.stack import USHER
from support.site.website import Response, Website
from usher.errors import BadInput
from usher.index import chunk_file, fields

pytestmark = EMBEDDED
SECRET = "quokkazephyr"
COMMON = "velvet"
PUBLIC = 30
HIDING_SECONDS = 2.0
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "60")
FRONTS = ("front-1", "front-2")


def page(title: str, words: str) -> Response:
    return Response(f"<html lang=en><title>{title}</title><p>{words}</p>".encode())


def site() -> Website:
    paths = ["/private/a", "/private/b", *(f"/{number}" for number in range(PUBLIC))]
    links = "".join(f"<a href='{path}'>{path}</a>" for path in paths)
    pages = {"/": Response(f"<title>Start</title><p>{COMMON} start</p>{links}".encode())}
    for path in paths:
        secret = SECRET if path.startswith("/private/") else "open"
        pages[path] = page(f"Page {path}", f"{COMMON} {secret} text of {path} only here")
    return Website(pages)


def search(stage: Stack, front: str, words: str) -> list[str] | None:
    """The URLs that a front-end lists; None while it cannot answer."""
    line = http.client.HTTPConnection("127.0.0.1", stage.crawl.ports[front], timeout=5)
    with closing(line), suppress(OSError, http.client.HTTPException):
        line.request("GET", f"/search.json?q={words}")
        answer = line.getresponse()
        if answer.status == 200:
            return sorted(result["url"] for result in json.loads(answer.read())["results"])
    return None


def found_everywhere(stage: Stack, urls: list[str]) -> bool:
    return all(search(stage, front, SECRET) == urls for front in FRONTS)


def start(stage: Stack, web: Website) -> list[str]:
    """Crawl the site into two rows behind two front-ends; returns the pages with the secret."""
    stage.servers(rows=2, each=1)
    stage.start("builder", "builder", "--processes", "1")
    for front in FRONTS:
        stage.start(front, "front")
    stage.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
    stage.crawl.crawler("crawler", "--pages", "8")
    stage.crawl.add(web.url("/"), words=["--full"])
    private = [web.url("/private/a"), web.url("/private/b")]
    assert eventually(lambda: found_everywhere(stage, private), 60), stage.crawl.log[-4000:]
    assert eventually(lambda: stage.crawl.states() == {"crawled": PUBLIC + 3}, 60)
    stage.propagated(60)
    return private


def places_of_secret(directory: Path) -> list[str]:
    """The files of crawlers, builders and index servers that hold the word, also in deleted documents."""
    places = [
        str(path)
        for path in directory.glob("data/content/**/*.warc.gz*")
        if SECRET.encode() in gzip.decompress(path.read_bytes())
    ]
    for path in directory.glob("data/**/*.idx"):
        with suppress(OSError, BadInput):  # dropped meanwhile, or a file of Tantivy
            _, documents = chunk_file.read(path)
            if any(SECRET in str(document) for document in documents):
                places.append(str(path))
    return places + [str(index) for index in directory.glob("data/index/*/*/") if has_term(index)]


def has_term(index: Path) -> bool:
    """Whether a Tantivy index has the word in its dictionary, in which deleted documents stay until a merge."""
    if not (index / "meta.json").exists():
        return False
    copy = index.with_name(f"{index.name}-copy")
    try:
        shutil.copytree(index, copy)
        searcher = tantivy.Index(fields.schema(), str(copy)).searcher()
        return bool(searcher.terms_with_prefix(fields.BODY, SECRET))
    except (OSError, ValueError, shutil.Error):  # a segment was merged away meanwhile
        return True
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def without_mgmt(stage: Stack) -> None:
    """Front-ends hide the pages while MGMT is away, and one that starts then shows nothing at all."""
    stage.kill("mgmt")
    stage.start("front-3", "front")
    for _ in range(20):
        assert found_everywhere(stage, [])
        assert search(stage, "front-3", SECRET) is None
        time.sleep(0.1)
    stage.processes.start("mgmt", *stage.processes.commands["mgmt"])
    assert eventually(lambda: bool(search(stage, "front-3", COMMON)), 30), stage.crawl.log[-4000:]
    assert search(stage, "front-3", SECRET) == []


@pytest.mark.soak
def test_a_removed_page_is_hidden_at_once_and_leaves_every_file(
    database: str, tmp_path: Path
) -> None:
    with site() as web, running_stack(database, tmp_path, chunk_lease=5) as stage:
        private = start(stage, web)
        assert len(places_of_secret(tmp_path)) >= 3  # two indexes, and chunk files
        stage.kill("server-2-1")
        host = f"127.0.0.1:{web.port}"
        words = ("remove", f"https://{host}/private/", "--reason", "notice 17")
        run = at_terminal(*words, environment=stage.processes.environment)
        removed_at = time.monotonic()
        assert run.code == 0, run.text
        assert f"removed: {host}/private/* (2 known pages, 2 of them searchable)" in run.text
        assert "Not changed: WARC files in an archive (--keep-warc), " in run.text
        while not found_everywhere(stage, []):
            assert time.monotonic() - removed_at < HIDING_SECONDS, "it is still shown"
            time.sleep(0.05)
        without_mgmt(stage)
        assert "removed" in stage.crawl.usher("explain", private[0])
        stage.processes.start("server-2-1", *stage.processes.commands["server-2-1"])
        due = "update work.compaction_candidate set check_at = '-infinity'"

        def is_purged() -> bool:
            assert found_everywhere(stage, []) or search(stage, FRONTS[0], SECRET) is None
            stage.crawl.run(due)
            return not places_of_secret(tmp_path)

        assert eventually(is_purged, 90), (places_of_secret(tmp_path), stage.crawl.log[-6000:])
        assert stage.find(1, COMMON) == stage.find(2, COMMON)
        assert len(stage.find(1, COMMON)) == PUBLIC + 1
        rows = (
            "select count(*) from work.guestbook where removed and text64 is null and etag is null"
        )
        assert stage.crawl.ask(rows) == [(2,)]
        undone = stage.crawl.usher("remove", "--undo", f"http://{host}/private/")
        assert undone == f"undone: {host}/private/*\n"
        assert eventually(lambda: found_everywhere(stage, private), 60), stage.crawl.log[-4000:]


@pytest.mark.soak
def test_a_removed_page_stays_away_whatever_is_killed(database: str, tmp_path: Path) -> None:
    """Each process is killed while the page is crawled again, built, loaded and merged."""
    with site() as web, running_stack(database, tmp_path, chunk_lease=3) as stage:
        start(stage, web)
        host = f"127.0.0.1:{web.port}"
        stage.crawl.usher("hosts", "recrawl", host, "--pass")
        words = ("remove", host, "--reason", "notice 18", "--yes")
        stage.crawl.usher(*words)
        # The whole host is removed, so the word of every page must be gone, not only that of the private ones.
        assert eventually(
            lambda: all(search(stage, front, COMMON) == [] for front in FRONTS), HIDING_SECONDS
        )
        for name in (
            "watchdog",
            "crawler",
            "builder",
            "mgmt",
            "server-1-1",
            "server-2-1",
            FRONTS[0],
        ):
            stage.processes.kill(name)
            for _ in range(5):
                # None is right too: a front-end that was killed, or has no server left, cannot answer.
                assert not any(search(stage, front, COMMON) for front in FRONTS), name
                time.sleep(0.1)
        left = "select count(*) from work.guestbook where indexed_in is not null"
        assert eventually(lambda: stage.crawl.ask(left) == [(0,)], 60), stage.crawl.log[-4000:]
        assert eventually(lambda: not stage.find(1, COMMON) and not stage.find(2, COMMON), 60)
