"""What `usher explain` and `usher pages` say about the pages of a crawl, compared with what a search finds."""

import json
import re
from pathlib import Path

import pytest

from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.pseudo_terminal import TerminalRun, at_terminal
from support.processes.terminal import show
from support.site.hostile import links, page
from support.site.website import Response, Website

pytestmark = EMBEDDED
WEB_PAGES = {
    "/": page("Start", links("/unreadable.pdf", "/portrait", "/words")),
    "/unreadable.pdf": Response(b"%PDF-1.4 nonsense", content_type="application/pdf"),
    "/portrait": Response(b"\x89PNG\r\n\x1a\n", content_type="image/png"),
    "/words": page("Words", "<p>Some wordsx here.</p>"),
}


def searchable_line(run: TerminalRun) -> str:
    [line] = [line for line in run.text.splitlines() if line.startswith("Searchable now:")]
    return line


@pytest.mark.soak
def test_the_verdict_is_what_a_search_finds(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"

    def at(*words: str) -> TerminalRun:
        environment = {"DATABASE_URL": database}
        return at_terminal("--data", str(data), *words, environment=environment)

    with Website(WEB_PAGES) as web:
        crawl = ("crawl", "--delay", "0", "--then", "serve", web.url("/"))
        with show(data, *crawl, dsn=database) as stack:
            stack.is_up()
            assert eventually(lambda: stack.finds("wordsx") == [web.url("/words")], 30), stack.logs
            for name in ("unreadable", "portrait"):  # the home page has the text of the links
                assert stack.finds(name) == [web.url("/")]
            assert searchable_line(at("explain", web.url("/words"))).startswith(
                "Searchable now: yes."
            )
            broken = at("explain", web.url("/unreadable.pdf"))
            assert (
                searchable_line(broken)
                == "Searchable now: no. It was crawled, but it has no text: it is not a readable PDF."
            )
            picture = at("explain", web.url("/portrait"))
            assert (
                "no. It was crawled, but it has no text: its content type has no text that Usher reads"
                in searchable_line(picture)
            )
            listed = at("pages", "list", "--result", "empty", "--json")
            assert [listed_page["url"] for listed_page in json.loads(listed.text)] == [
                web.url("/portrait"),
                web.url("/unreadable.pdf"),
            ]
            stack.ctrl_c()
            assert stack.ends() == 0, stack.logs
        stopped = at("explain", web.url("/words"))
        assert re.search(
            r"Searchable now: no\. It is in the index \(chunk \d+\), but Usher is not running\.\n"
            rf"  → usher --data {re.escape(str(data))} up\n",
            stopped.text,
        ), stopped.text
        bare = f"127.0.0.1:{web.port}/words"
        for words in (("explain", bare), ("pages", "show", bare)):
            assert web.url("/words") in at(*words).text
            assert "https:" not in at(*words).text
