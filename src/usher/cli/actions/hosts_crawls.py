"""`usher hosts crawls` and `usher hosts stop`: open crawls with a forecast, and the end of a crawl."""

from collections.abc import Sequence
from typing import Any

from usher.cli.actions.pages import reader_transaction
from usher.cli.app import App, show_list
from usher.cli.area_access import call_in
from usher.cli.door_access import door_transaction
from usher.cli.output import display_time
from usher.db.clock import server_time
from usher.door import admin
from usher.door.host_lookup import host_names, require_hosts
from usher.mgmt import open_crawls
from usher.mgmt.open_crawls import MAX_PAGES_COUNTED
from usher.wording import capped_count, printable, relative_time


def list_crawls(app: App, *, as_json: bool, limit: int, **conditions: Any) -> None:  # noqa: ANN401 - as click read them
    listed = call_in(reader_transaction(app), open_crawls.open_crawls, n=limit, **conditions)
    now = display_time()
    rows = [
        (
            crawl.name,
            crawl.state,
            relative_time(crawl.started, now),
            capped_count(crawl.waiting, MAX_PAGES_COUNTED),
            capped_count(crawl.fetching, MAX_PAGES_COUNTED),
            capped_count(crawl.pages, MAX_PAGES_COUNTED),
            crawl.forecast(now),
            printable(crawl.reason or "-"),
        )
        for crawl in listed
    ]
    headings = ("HOST", "STATE", "STARTED", "WAITING", "FETCHING", "PAGES", "FORECAST", "REASON")
    show_list(app, listed, headings, rows, as_json=as_json)


async def stop_crawls(app: App, texts: Sequence[str]) -> None:
    """Drop the waiting pages of hosts, or of none if one is unknown."""
    names = host_names(texts)
    async with door_transaction(app) as conn:
        stopped = await admin.stop_crawls(conn, names=names, now=await server_time(conn))
        await require_hosts(conn, names, [host.name for host in stopped])
    for host in stopped:
        app.say(f"{host.name}: {host.text}")
