"""`usher crawler` fetches the pages that MGMT assigns; `usher fetch` shows one page as the crawler sees it."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    App,
    announce,
    bind_option,
    host_option,
    json_option,
    mgmt_option,
    pass_app,
    range_option,
    run,
    run_until_stopped,
    show_field,
    show_json,
)
from usher.cli.output import echo
from usher.cli.place import archive_option
from usher.wording import printable

MAX_LINKS = 20  # shown without --links
MAX_TEXT_CHARACTERS = 600  # shown without --text
MAX_LINE_CHARACTERS = 8_192
FIELDS = ("url", "status", "result", "why", "robots", "delay", "type", "length", "moved_to")


@click.command()
@mgmt_option
@bind_option("127.0.0.1:8421", "Address where builders download crawled chunks.")
@host_option
@range_option("--pages", 50, 1, 1000, "Pages per chunk.")
@range_option("--chunks", 8, 1, 1000, "Chunks at once.")
@archive_option()
@click.option("--insecure", is_flag=True, help="Serve files to other machines without a token.")
@pass_app
def crawler(
    app: App,
    /,
    *,
    mgmt: str | None,
    bind: str,
    pages: int,
    chunks: int,
    **options: Any,  # noqa: ANN401 - as click read them
) -> None:
    """Fetch the pages that MGMT assigns until stopped; several crawlers may run.

    Obeys robots.txt and the delay of each host. Writes pages to WARC files, serves them to index
    builders, and deletes them when every row of index servers has them. TERM or Ctrl-C finishes
    the requests in progress; other crawlers get the rest.

    \b
    Examples:
      usher crawler
      USHER_CONTACT=https://example.org/bot usher crawler --mgmt http://10.0.0.1:8411
      usher crawler --keep-warc s3://archive/warc
    """
    from usher.crawl.crawler import CrawlerLoad
    from usher.crawl.service import CrawlerOptions, run_crawler
    from usher.http.server.listen import read_bind

    settings, load = app.settings_for(mgmt), CrawlerLoad(pages=pages, chunks=chunks)
    given = CrawlerOptions(bind=read_bind(bind), load=load, **options)
    run_until_stopped(app, lambda stop: run_crawler(settings, given, stop, ready=announce))


@click.command()
@click.argument("url")
@click.option("--links", "all_links", is_flag=True, help="Show every link.")
@click.option("--text", "whole_text", is_flag=True, help="Show the whole text.")
@json_option
@pass_app
def fetch(app: App, url: str, *, all_links: bool, whole_text: bool, as_json: bool) -> int:
    """Fetch one page as the crawler would, and show the result; nothing is stored.

    Exit code 0: the page can be indexed. 3: it cannot, and the first lines say why.

    \b
    Examples:
      usher fetch https://example.com/
      usher fetch --text https://example.com/about
    """
    from usher.crawl.show import visit_report

    page = visit_report(run(actions.crawler.fetch_typed(app, url)))
    if as_json:
        show_json(page)
    else:
        links = None if all_links else MAX_LINKS
        show_page(page, links=links, text=None if whole_text else MAX_TEXT_CHARACTERS)
    return 0 if page["findable"] else 3


def show_page(page: dict[str, Any], *, links: int | None, text: int | None) -> None:
    """Show a page with at most so many links, and so many characters of its text."""
    for name in FIELDS:
        if page.get(name) not in (None, ""):
            show_line(name.replace("_", " "), str(page[name]))
    for document in page["documents"]:
        show_line("title", document["title"])
        show_line("language", document["language"] or "unknown")
        for heading in document["headings"][:10]:
            show_line("heading", heading)
        if document["text"]:
            cut = text is not None and len(document["text"]) > text
            echo(f"\n{document['text'][:text]}{'…' if cut else ''}\n")
    for link in page["links"][:links]:
        show_line("link", link)
    if links is not None and len(page["links"]) > links:
        show_field("", f"and {len(page['links']) - links:,} more (--links shows all)")


def show_line(name: str, value: str) -> None:
    show_field(name, printable(value, MAX_LINE_CHARACTERS))
