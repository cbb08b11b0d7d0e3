"""`usher crawler` runs on and fetches what MGMT hands out; `usher fetch` shows one page as it would see it."""

from typing import TYPE_CHECKING, Any

import click

from usher.cli.app import App, json_option, pass_app, run, run_service, show_json
from usher.cli.output import echo
from usher.cli.wording import printable

if TYPE_CHECKING:
    from usher.crawl.service import CrawlerOptions
    from usher.settings import Settings

MAX_LINKS = 20  # links, without --links
MAX_TEXT_CHARACTERS = 600  # characters
MAX_LINE_CHARACTERS = 8_192


@click.command()
@click.option("--mgmt", metavar="URL", help="MGMT's address (also USHER_MGMT_URL).", default=None)
@click.option(
    "--bind",
    default="127.0.0.1:8421",
    show_default=True,
    metavar="HOST:PORT",
    help="Where builders fetch what was crawled.",
)
@click.option(
    "--host", default="", metavar="HOST:PORT", help="Where others reach it, if not there."
)
@click.option(
    "--pages",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Pages of a chunk.",
)
@click.option(
    "--chunks",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="Chunks at once.",
)
@click.option("--keep-warc", is_flag=True, help="Keep every file: an archive of what was crawled.")
@click.option("--insecure", is_flag=True, help="Serve files to other machines without a token.")
@pass_app
def crawler(
    app: App,
    mgmt: str | None,
    bind: str,
    host: str,
    pages: int,
    chunks: int,
    *,
    keep_warc: bool,
    insecure: bool,
) -> None:
    """Fetch the pages that MGMT hands out, until told to stop; any number of crawlers may work.

    \b
    It obeys robots.txt, rests as long as each host wants, and writes what it fetched as WARC
    files, which it serves to index builders and drops when every row of servers has them.
    TERM or Ctrl-C lets what is under way end; the rest waits for others.

    \b
    Examples:
      usher crawler
      USHER_CONTACT=https://example.org/bot usher crawler --mgmt http://10.0.0.1:8411
    """
    from dataclasses import replace

    from usher.crawl.crawler import Load
    from usher.crawl.service import CrawlerOptions
    from usher.http.server.listen import read_bind

    settings = replace(app.settings, mgmt_url=mgmt) if mgmt else app.settings
    load = Load(pages=pages, chunks=chunks)
    wish = CrawlerOptions(
        bind=read_bind(bind), host=host, load=load, keep=keep_warc, insecure=insecure
    )
    run_service(app, run_crawler(settings, wish))


async def run_crawler(settings: "Settings", wish: "CrawlerOptions") -> None:
    """Until told to stop; told twice, at once."""
    import asyncio

    from usher.crawl.service import crawl
    from usher.shutdown import told_to_stop

    with told_to_stop() as (stop, now):
        task = asyncio.create_task(crawl(settings, wish, stop, ready=echo))
        impatient = asyncio.create_task(now.wait())
        await asyncio.wait([task, impatient], return_when=asyncio.FIRST_COMPLETED)
        impatient.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=now.is_set())


@click.command()
@click.argument("url")
@click.option("--links", "all_links", is_flag=True, help="Every link, not only the first ones.")
@click.option("--text", "whole_text", is_flag=True, help="The whole text.")
@json_option
@pass_app
def fetch(app: App, url: str, *, all_links: bool, whole_text: bool, as_json: bool) -> None:
    """Fetch one page as the crawler would, and show what it sees; nothing is stored.

    \b
    Exit code 0: it could be indexed. 3: it could not, and the first lines say why.

    \b
    Examples:
      usher fetch https://example.com/
      usher fetch --text https://example.com/about
    """
    from usher.crawl.show import look, portrait

    seen = run(look(app.settings, url))
    found = portrait(seen)
    if as_json:
        show_json(found)
    else:
        show(
            found,
            most=None if all_links else MAX_LINKS,
            text=None if whole_text else MAX_TEXT_CHARACTERS,
        )
    if not found["findable"]:
        raise SystemExit(3)


def show(found: dict[str, Any], *, most: int | None, text: int | None) -> None:
    for name in ("url", "status", "result", "why", "robots", "delay", "type", "length", "moved_to"):
        if found.get(name) not in (None, ""):
            echo(f"{name.replace('_', ' '):<11}{printable(str(found[name]), MAX_LINE_CHARACTERS)}")
    for document in found["documents"]:
        echo(f"{'title':<11}{printable(document['title'], MAX_LINE_CHARACTERS)}")
        echo(f"{'language':<11}{printable(document['language'] or 'unknown')}")
        for heading in document["headings"][:10]:
            echo(f"{'heading':<11}{printable(heading, MAX_LINE_CHARACTERS)}")
        words = document["text"]
        if text is not None and len(words) > text:
            words = f"{words[:text]}…"
        echo(f"\n{words}\n")
    links = found["links"]
    for link in links[:most]:
        echo(f"{'link':<11}{printable(link, MAX_LINE_CHARACTERS)}")
    if most is not None and len(links) > most:
        echo(f"{'':<11}and {len(links) - most:,} more (--links shows all)")
