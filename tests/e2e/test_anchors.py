"""A page is found by what other pages call it, however often these are crawled."""

from pathlib import Path

from support.index.stack import running_stack
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = EMBEDDED
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "30")
COUNTS = (
    "select a.text, cardinality(a.own_pages) from work.anchor a "
    "join work.guestbook g on g.id = a.page_id where g.path = '/b' order by 1"
)


def page(title: str, body: str) -> Response:
    return Response(f"<html lang=en><title>{title}</title><p>velvet {title}</p>{body}".encode())


def linking(number: int, visit: int) -> Response:
    link = "<a href=/b><b>Old</b> lighthouse</a> <a href=/><img src=x alt='The harbour'></a>"
    return page(f"Page {number}", f"visit{visit} number{number} {link}")


def site() -> Website:
    menu = "".join(f"<a href=/{path}>Page {path}</a> " for path in ("1", "2", "3"))
    pages = {f"/{number}": linking(number, 1) for number in (1, 2, 3)}
    return Website(
        {"/": page("Start", menu + "<a href=/b>»</a>"), "/b": page("Bee", "plain"), **pages}
    )


def test_a_page_is_found_by_the_texts_of_links(database: str, tmp_path: Path) -> None:
    with site() as web, running_stack(database, tmp_path, chunk_lease=5) as stack:
        stack.servers(rows=1, each=1)
        stack.start("builder", "builder", "--processes", "1")
        stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        stack.crawl.crawler("crawler", "--pages", "5")
        stack.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: stack.crawl.states().get("crawled") == 5, 60)
        stack.propagated(60)
        assert stack.crawl.ask(COUNTS) == [("Old lighthouse", 3)]
        stack.crawl.usher(
            "chunks", "compact"
        )  # some pages were indexed before others linked to them

        def found() -> bool:
            return web.url("/b") in stack.find(1, "lighthouse") and web.url("/") in stack.find(
                1, "harbour"
            )

        assert eventually(found, 60), stack.crawl.log[-4000:]
        stack.propagated(60)
        for number in (1, 2, 3):
            web.add(f"/{number}", linking(number, 2))
        stack.crawl.usher("hosts", "recrawl", f"127.0.0.1:{web.port}", "--pass")
        assert eventually(lambda: len(stack.find(1, "visit2")) == 3, 60), stack.crawl.log[-4000:]
        assert stack.crawl.ask(COUNTS) == [("Old lighthouse", 3)]
        assert web.url("/b") in stack.find(1, '"old lighthouse"')
        assert web.url("/b") not in stack.find(1, "harbour")
        assert web.url("/b") in stack.find(1, "bee -lighthouse")
        requests = [request.route for request in web.log].count("/b")
        assert requests == 2  # no fetch to index it again
