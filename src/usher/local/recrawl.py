"""Fetch known pages again for `usher crawl`: with `--again`, or to follow links beyond a limit that is raised now.

With `--again` every known page of the hosts, or as many as `--max-pages` allows: `max_pages` of a host limits new pages
only, and a full knock admits every known page of a host.
"""

from collections.abc import Sequence
from typing import Final

from usher.db.clock import server_time
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.door import admin
from usher.door.admin import HostDetails
from usher.door.batch import UrlVerdict
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock
from usher.urls import Url, url_text

store = load_statements(__file__)
WHOLE_HOST: Final = Knock("full", hall_pass=True)
ONE_PAGE: Final = Knock("single", hall_pass=True)


async def knock_again(
    door: Database, urls: Sequence[Url], max_pages: int | None
) -> list[UrlVerdict]:
    """The door's answers to the URLs, in any order."""
    limited: dict[str, list[str]] = {}
    for host in dict.fromkeys(url.host for url in urls) if max_pages else ():
        given = [str(url) for url in urls if url.host == host]
        if pages := await limited_pages(door, host, given, max_pages or 0):
            limited[host] = pages
    whole = [str(url) for url in urls if url.host not in limited]
    keeper = Doorkeeper(door)
    answers = list((await keeper.knock(whole, knock=WHOLE_HOST)).answers) if whole else []
    pages = [page for listed in limited.values() for page in listed]
    named = {str(url) for url in urls}
    if pages:
        batch = await keeper.knock(pages, knock=ONE_PAGE)
        answers += [answer for answer in batch.answers if answer.given in named]
    return answers


async def limited_pages(
    door: Database, host: str, given: Sequence[str], max_pages: int
) -> list[str]:
    """The given pages and the first others, up to the limit; none if the host has no more pages than that."""
    async with door.transaction() as conn:
        details = await admin.show_host(conn, name=host)
        if details is None:
            return []
        rows = await store.first_pages.tuples(conn, domain64=details.domain64, n=max_pages + 1)
    if len(rows) <= max_pages:
        return []
    pages = [url_text(scheme, host, path) for scheme, path in rows]
    return list(dict.fromkeys([*given, *pages]))[: max(max_pages, len(given))]


async def knock_beyond_limits(
    door: Database, hosts: Sequence[HostDetails], *, max_pages: int | None, max_depth: int | None
) -> dict[str, int]:
    """Knock for pages whose links a lower limit refused, which nothing stores; returns their number by host.

    Without conditions, because the answer "not modified" has no links. If the host is full, these may be all its pages.
    """
    pages: dict[str, int] = {}
    for host in hosts:
        async with door.transaction() as conn:
            rows = await store.request_whole_pages.tuples(
                conn,
                domain64=host.domain64,
                now=await server_time(conn),
                is_full=await is_raised_when_full(conn, host, max_pages),
                depth=host.effective_max_depth
                if raises(host.effective_max_depth, max_depth)
                else None,
            )
        if rows:
            urls = [url_text(scheme, host.name, path) for scheme, path in rows]
            await Doorkeeper(door).knock(urls, knock=ONE_PAGE)
            pages[host.name] = len(urls)
    return pages


async def is_raised_when_full(conn: Connection, host: HostDetails, max_pages: int | None) -> bool:
    """Whether the host has as many pages as it may have, and may now have more."""
    limit = host.effective_max_pages
    if not raises(limit, max_pages):
        return False
    return await admin.count_known_pages(conn, number=host.domain64, most=limit) >= limit


def raises(limit: int, new: int | None) -> bool:
    return new is not None and new > limit
