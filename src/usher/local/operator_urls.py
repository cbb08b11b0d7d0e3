"""The URLs that the operator types as arguments of a command: their schemes, permissions for private hosts, retries.

Only commands call this module, with their own arguments: never with lines of a file, a page, a feed or an HTTP call.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from usher.crawl import private_permission
from usher.crawl.http.connect import LOST_DURING_TLS, NOT_TLS
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.door import admin, guestbook, hosts, private_access
from usher.urls import Scheme, Url, UrlRefusal, parse

store = load_statements(__file__)


async def prepare_hosts(db: Database, texts: Sequence[str], *, retry: bool) -> list[str]:
    """Apply what the operator typed to hosts and pages, before the knock; return the texts, each with its scheme.

    Permits connections to hosts that are not public. A typed scheme replaces the stored one. With `retry`, what failed
    without a response is tried again at once: the cause may be gone, and a person waits.
    """
    complete = await with_schemes(db, texts)
    urls = [url for text in complete if isinstance(url := parse(text), Url)]
    await allow_private_hosts(db, urls)
    async with db.transaction() as conn:
        await admin.use_schemes(conn, [typed for text in texts if (typed := typed_url(text))])
        if retry:
            await retry_failures(conn, [url.host for url in urls])
    return complete


async def with_schemes(db: Database, texts: Sequence[str]) -> list[str]:
    """The URLs that a person types, each with a scheme if it is known; nothing is changed."""
    async with db.transaction() as conn:
        return [await with_scheme(conn, text) for text in texts]


async def with_scheme(conn: Connection, text: str) -> str:
    """The URL with the scheme of its page, else of its host, if the text has none; the text if neither is known."""
    url = parse(text)
    if isinstance(url, UrlRefusal) or has_scheme(text, url):
        return text
    host = await admin.show_host(conn, name=url.host)
    if host is None:
        return text
    page = await guestbook.page(conn, domain64=host.domain64, path=url.path)
    return str(replace(url, scheme=Scheme(page.scheme if page else host.scheme)))


async def with_working_schemes(
    db: Database, fetcher: Fetcher, texts: Sequence[str], *, say: Callable[[str], None]
) -> list[str]:
    """As `with_schemes`, but with http for a host without a typed scheme that has only http and was never fetched."""
    complete = await with_schemes(db, texts)
    for number, text in enumerate(texts):
        url = parse(complete[number])
        if isinstance(url, UrlRefusal) or has_scheme(text, url) or url.scheme is not Scheme.HTTPS:
            continue
        if await has_answered(db, url):
            continue
        https_response = await fetch_robots(fetcher, url)
        http = replace(url, scheme=Scheme.HTTP)
        if has_no_https(https_response) and (await fetch_robots(fetcher, http)).status is not None:
            say(f"{url.host} has no https ({https_response.error}). The crawl uses {http}")
            complete[number] = str(http)
    return complete


async def has_answered(db: Database, url: Url) -> bool:
    """Whether a page of the host was ever fetched."""
    async with db.transaction() as conn:
        return bool(await store.has_answered.value(conn, host=url.host))


def has_no_https(response: FetchResponse) -> bool:
    """Whether the host offers no https at this port; a host with an invalid certificate does."""
    return response.kind == "refused" or response.error in (NOT_TLS, LOST_DURING_TLS)


async def fetch_robots(fetcher: Fetcher, url: Url) -> FetchResponse:
    """Fetch robots.txt, which may always be requested; a private host is permitted because the operator named it."""
    robots = replace(url, path="/robots.txt")
    return await fetcher.get(robots, permission=await private_permission.needed_permission(robots))


def typed_url(text: str) -> Url | None:
    """The URL of a text that names its scheme."""
    url = parse(text)
    return url if isinstance(url, Url) and has_scheme(text, url) else None


def has_scheme(text: str, url: Url) -> bool:
    """Whether the text of a URL names its scheme; otherwise https was assumed."""
    return text.lstrip().lower().startswith(f"{url.scheme.word}:")


async def allow_private_hosts(db: Database, urls: Sequence[Url]) -> None:
    """Permit connections to hosts that are not public, because the operator named them."""
    for url in dict.fromkeys(replace(url, path="/") for url in urls):
        permission = await private_permission.needed_permission(url)
        if permission is not None:
            async with db.transaction() as conn:
                await private_access.grant(conn, url, permission)


async def retry_failures(conn: Connection, names: Sequence[str]) -> None:
    """Try again at once what failed at these hosts without a response."""
    registered = await hosts.find(conn, names=list(dict.fromkeys(names)))
    await admin.retry_failures(conn, [host.domain64 for host in registered])
