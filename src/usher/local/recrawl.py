"""Knock for the URLs of `usher crawl --again`: every known page of their hosts, or as many as `--max-pages` allows.

`max_pages` of a host limits new pages only, and a full knock admits every known page of a host.
"""

from collections.abc import Sequence
from typing import Final

from usher.db.pool import Database
from usher.db.statements import load_statements
from usher.door import admin
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
