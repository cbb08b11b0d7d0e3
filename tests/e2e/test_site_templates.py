"""The menu of a site is not in the main text of its pages, though nothing in the markup says that it is a menu."""

from pathlib import Path
from typing import Any

import pytest

from support.index.stack import Stack, running_stack
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = EMBEDDED
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "30")
PAGES = 30
MENU = ("Harbourmaster", "Opening hours", "Tickets and prices", "Our newsletter shop")


def page(number: int) -> Response:
    """A page with a text of its own between two menus in plain elements."""
    word = "".join(chr(ord("a") + int(digit)) * 3 for digit in f"{number:02}")
    menu = "".join(f"<div>{line}</div>" for line in MENU)
    links = "".join(f"<div><a href=/{at}>Page {at}</a></div>" for at in range(1, PAGES))
    text = (
        f"The keeper climbs the stairs of the {word} lighthouse every evening and lights the lamp."
    )
    html = f"<html lang=en><title>Page {number}</title><div>{menu}</div><div><p>{text}</p></div><div>{menu}</div>"
    return Response(f"{html}<div>{links}</div>".encode())


def texts(stack: Stack, word: str) -> dict[str, int]:
    """How many documents have the word in their main text, and in other text."""
    terms: dict[str, int] = stack.ask("server-1-1", "/stats", {"query": word})["terms"]
    return {field: terms[f"{field}:{word}"] for field in ("body", "rest")}


def snippets(stack: Stack, words: str) -> list[str]:
    request = {"query": words, "k": 100, "show": 100}
    told: dict[str, Any] = stack.ask("server-1-1", "/search", request)
    return ["".join(text for text, _ in passage["pieces"]) for passage in told["shown"]]


@pytest.mark.soak
def test_a_menu_without_markup_leaves_the_main_text(database: str, tmp_path: Path) -> None:
    pages = {f"/{number}": page(number) for number in range(1, PAGES + 1)}
    with (
        Website({"/": page(0), **pages}) as web,
        running_stack(database, tmp_path, chunk_lease=5) as stack,
    ):
        stack.servers(rows=1, each=1)
        stack.start("builder", "builder", "--processes", "1")
        stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        stack.crawl.crawler("crawler", "--pages", "5")
        stack.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: stack.crawl.states().get("crawled") == PAGES, 90)
        stack.propagated(60)
        assert texts(stack, "harbourmaster")["body"] > 0  # the first pages were indexed before
        without_menu = {"body": 0, "rest": PAGES}

        def is_compacted() -> bool:
            """Compact until all pages were read with the whole template, which MGMT learns from the last ones too."""
            stack.crawl.usher("chunks", "compact")
            return eventually(lambda: texts(stack, "harbourmaster") == without_menu, 10)

        assert eventually(is_compacted, 90), stack.crawl.log[-4000:]
        for query in ("lighthouse", "harbourmaster", "newsletter shop"):
            passages = snippets(stack, query)
            assert len(passages) == PAGES
            assert not [text for text in passages if any(line in text for line in MENU)]
        assert all("keeper climbs the stairs" in text for text in snippets(stack, "lighthouse"))
        assert len(web.log) == PAGES + 1  # with robots.txt: nothing was fetched again
        stack.crawl.add(
            web.url(f"/{PAGES}"), words=["--pass"]
        )  # a new page has no menu from the beginning
        without_menu = {"body": 0, "rest": PAGES + 1}
        assert eventually(lambda: texts(stack, "harbourmaster") == without_menu, 60)
