"""The URLs that the operator types as arguments of a command: their schemes, permissions for private hosts, retries.

Only commands call this module, with their own arguments: never with lines of a file, a page, a feed or an HTTP call.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from usher.crawl import private_permission
from usher.crawl.http.connect import LOST_DURING_TLS, NOT_TLS
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.door import admin, guestbook, hosts, private_access
from usher.urls import Scheme, Url, UrlRefusal, parse

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class TypedUrls:
    """URLs that the operator typed, each with its scheme, and the numbers of hosts whose pages got another scheme."""

    texts: Sequence[str]
    changed_hosts: Collection[int] = ()

    @property
    def hosts(self) -> list[str]:
        return [url.host for text in self.texts if isinstance(url := parse(text), Url)]


async def prepare_hosts(db: Database, texts: Sequence[str], *, retry: bool) -> list[str]:
    """As `apply_typed`, before the knock; with `retry`, what failed without a response is tried again at once.

    The cause may be gone, and a person waits.
    """
    typed = await apply_typed(db, texts)
    if retry:
        async with db.transaction() as conn:
            await retry_failures(conn, typed.hosts)
    return list(typed.texts)


async def apply_typed(db: Database, texts: Sequence[str]) -> TypedUrls:
    """Permit connections to hosts that are not public. A typed scheme replaces the stored one."""
    complete = await with_schemes(db, texts)
    await allow_private_hosts(db, [url for text in complete if isinstance(url := parse(text), Url)])
    async with db.transaction() as conn:
        typed = [named for text in texts if (named := typed_url(text))]
        return TypedUrls(complete, await admin.use_schemes(conn, typed))


async def retry_typed(db: Database, typed: TypedUrls, *, everything: bool) -> None:
    """Try again at once what failed without a response, at all these hosts or where another scheme may work.

    Call it after the knock, so that the door's answers say what happens to each page.
    """
    async with db.transaction() as conn:
        if everything:
            await retry_failures(conn, typed.hosts)
        elif typed.changed_hosts:
            await admin.retry_failures(conn, sorted(typed.changed_hosts))


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
        if not await has_answered(db, url) and (http := await http_instead(fetcher, url, say=say)):
            complete[number] = str(http)
    return complete


async def with_working_scheme(fetcher: Fetcher, text: str, *, say: Callable[[str], None]) -> str:
    """The URL with http if the text names no scheme and its host has only http; else the text."""
    url = parse(text)
    if isinstance(url, UrlRefusal) or has_scheme(text, url):
        return text
    return str(await http_instead(fetcher, url, say=say) or text)


async def http_instead(fetcher: Fetcher, url: Url, *, say: Callable[[str], None]) -> Url | None:
    """The URL with http if its host has no https and answers to http."""
    http = replace(url, scheme=Scheme.HTTP)
    https_response = await fetch_robots(fetcher, url)
    if has_no_https(https_response) and (await fetch_robots(fetcher, http)).status is not None:
        say(f"{url.host} has no https ({https_response.error}). The crawl uses {http}")
        return http
    return None


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
