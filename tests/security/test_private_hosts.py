"""A private host is requested only where the operator named it; no public page leads to it."""

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import psycopg
import pytest

from support.processes.commands import Ran, usher
from support.processes.crawls import EMBEDDED, crawls
from support.processes.free_port import free_port
from support.processes.namespaces import PUBLIC, in_namespace, needs_root
from support.processes.terminal import PORTS, show
from support.site.fetches import url
from support.site.hostile import page
from support.site.website import Response, Website
from usher.db.pool import Database, connect
from usher.door import hosts, private_access
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock
from usher.errors import NotAllowed
from usher.private_hosts import HostPermission, parse_allow_list

PRIVATE = "127.0.5.1"
FEED = "application/rss+xml"


def private_site() -> Website:
    """A site that must be asked for nothing but its own pages."""
    pages = {"/": page("Intranet", '<a href="/own">own</a>'), "/own": page("Its own page")}
    return Website({**pages, "/*": page("A page that only a public page names")}, host=PRIVATE)


def public_site(private: Website) -> Website:
    """A site on a public address that leads to the private one in every way there is."""
    there = private.url
    linked = [f'<a href="{path}">x</a>' for path in ("/refresh", "/redirect", "/canonical", "/end")]
    named = [
        f'<a href="{there("/link")}">x</a>',
        f'<iframe src="{there("/iframe")}"></iframe>',
        f'<link rel="alternate" type="{FEED}" href="{there("/feed")}">',
    ]
    robots = f"Sitemap: {there('/robots.xml')}\nSitemap: http://{PUBLIC}/map.xml\n"
    urls = f"<url><loc>{there('/entry')}</loc><lastmod>2026-11-16</lastmod></url>"
    index = f"<sitemap><loc>{there('/nested.xml')}</loc></sitemap>"
    return Website(
        {
            "/": page("A public page", "".join([*linked, *named])),
            "/end": page("The last page", f'<a href="{there("/own?from=public")}">x</a>'),
            "/refresh": Response(
                f'<meta http-equiv="refresh" content="0; url={there("/refresh")}">'.encode()
            ),
            "/canonical": Response(f'<link rel="canonical" href="{there("/canonical")}">'.encode()),
            "/redirect": Response(status=302, headers={"Location": there("/redirect")}),
            "/seed": Response(status=301, headers={"Location": there("/seed")}),
            "/robots.txt": Response(robots.encode(), content_type="text/plain"),
            "/map.xml": Response(
                f"<urlset>{urls}</urlset>".encode(), content_type="application/xml"
            ),
            "/index.xml": Response(
                f"<sitemapindex>{index}</sitemapindex>".encode(), content_type="application/xml"
            ),
        },
        host=PUBLIC,
        port=80,
    )


def asked(site: Website) -> set[str]:
    return {request.path for request in site.log}


def crawl_both(database: str, directory: Path, *, setting: str) -> tuple[set[str], set[str]]:
    """What a crawl of both sites asks of each; without a setting the operator names the private one."""
    with ExitStack() as stack:
        private = stack.enter_context(private_site())
        public = stack.enter_context(public_site(private))
        other = Website(
            {"/robots.txt": Response(status=302, headers={"Location": private.url("/rules")})},
            host=PUBLIC,
            port=8080,
        )
        stack.enter_context(other)
        crawl = stack.enter_context(crawls(database, directory, allow_private=setting))
        crawl.add(private.url("/"))
        if not setting:
            crawl.usher("hosts", "set", private.url("/"), "--allow-private")
        crawl.add(*(public.url(path) for path in ("/", "/seed", "/index.xml")), other.url("/"))
        crawl.crawler()
        crawl.wait()
        return asked(private), asked(public)


@EMBEDDED
@needs_root
@pytest.mark.attack(
    7,
    "a public page leads to a named private host: link, iframe, refresh, redirect, sitemap, robots.txt",
    "the private host is asked for its own pages only",
)
def test_no_public_page_leads_to_a_named_private_host(database: str, tmp_path: Path) -> None:
    private, public = in_namespace(lambda: crawl_both(database, tmp_path, setting=""))
    assert public >= {"/", "/end", "/refresh", "/redirect", "/canonical", "/seed", "/map.xml"}
    assert private == {"/robots.txt", "/", "/own"}


@EMBEDDED
@needs_root
@pytest.mark.attack(
    7,
    "a public page leads to a private host that allow_private lists",
    "the private host is asked for its own pages only",
)
def test_no_public_page_leads_to_a_listed_private_host(database: str, tmp_path: Path) -> None:
    private, public = in_namespace(lambda: crawl_both(database, tmp_path, setting=PRIVATE))
    assert public >= {"/", "/end", "/refresh", "/redirect", "/canonical", "/seed", "/map.xml"}
    assert private == {"/robots.txt", "/", "/own"}


# -- the door


@asynccontextmanager
async def named(database: str) -> AsyncIterator[Doorkeeper]:
    """A door that knows a private host, which the operator named, with one page of it crawled."""
    async with Database(database, role="usher_door") as db:
        door = Doorkeeper(db, parse_allow_list("intra.test, 10.1.0.0/16"))
        async with db.transaction() as conn:
            there = url("http://10.0.0.7:8080/")
            permission = HostPermission("10.0.0.7", 8080, ("10.0.0.7",))
            await private_access.grant(conn, there, permission)
        await door.knock([str(there), "http://10.1.0.1/", "http://intra.test/", "http://a.org/"])
        yield door


async def reasons(door: Doorkeeper, *urls: str, source: str | None) -> list[str]:
    told = await door.knock(urls, knock=Knock(source=source))
    return [answer.reason.value for answer in told.answers]


@pytest.mark.attack(
    7,
    "a crawler reports links to private hosts, found on a public page or on a page it does not name",
    "the door refuses them with the reason private_host and registers no host",
)
@pytest.mark.parametrize("source", ["", "a.org", "10.0.0.7", "10.0.0.8:8080", "localhost"])
async def test_the_door_refuses_links_to_private_hosts(database: str, source: str) -> None:
    links = ("http://10.0.0.7:8080/x", "http://10.1.0.1/x", "http://intra.test/x", "http://[::1]/")
    async with named(database) as door:
        assert await reasons(door, *links, source=source) == ["private_host"] * len(links)
        async with door.db.transaction() as conn:
            assert not await hosts.find(conn, names=["[::1]"])
        assert await reasons(door, "http://a.org/x", source=source) == ["new_page"]


async def test_own_pages_listed_hosts_and_the_operator_may_lead_to_private_hosts(
    database: str,
) -> None:
    async with named(database) as door:
        there = "http://10.0.0.7:8080/"
        assert await reasons(door, f"{there}a", source="10.0.0.7:8080") == ["new_page"]
        assert await reasons(door, f"{there}b", source=None) == ["new_page"]
        assert await reasons(door, "http://10.1.0.1/x", source="intra.test") == ["new_page"]
        assert await reasons(door, f"{there}c", source="intra.test") == ["private_host"]


@pytest.mark.attack(
    7,
    "a sitemap of a public host says that a private page has changed",
    "the private page is not due any sooner",
)
async def test_a_hint_needs_the_same_host(database: str) -> None:
    later = datetime(2026, 12, 1, tzinfo=UTC)
    async with named(database) as door:
        async with await connect(database) as conn:
            await conn.execute(
                "update work.guestbook set state = 'crawled', next_fetch = 'infinity'"
            )
        changed = [("http://10.0.0.7:8080/", later)]
        assert await door.hint(changed, source="a.org", now=later) == 0
        assert await door.hint(changed, source="10.0.0.7:8080", now=later) == 1


@pytest.mark.attack(
    7,
    "a page names the address of a component of Usher",
    "the door refuses it with the reason own_address, also for the operator",
)
async def test_the_door_refuses_components(database: str) -> None:
    async with named(database) as door:
        assert await reasons(door, "http://10.0.0.7:8080/x", source=None) == ["new_page"]
        async with await connect(database) as conn:
            await conn.execute(
                "insert into work.component (host, type) values ('10.0.0.7:8080', 'crawler')"
            )
        assert await reasons(door, "http://10.0.0.7:8080/y", source=None) == ["own_address"]


@pytest.mark.attack(
    7,
    "MGMT's database role gives a permission by itself",
    "only the operator's role may, and only by the function",
)
async def test_only_the_operator_gives_permissions(database: str) -> None:
    calls = "select work.allow_private('a.org', 80, '{10.0.0.7}', now())"
    writes = "insert into work.private_access values ('a.org', 80, '{10.0.0.7}', now())"
    for role, statement in [("usher_mgmt", calls), ("usher_mgmt", writes), ("usher_door", writes)]:
        with pytest.raises(NotAllowed):
            async with Database(database, role=role) as db, db.transaction() as conn:
                await conn.execute(statement.encode())


@EMBEDDED
@pytest.mark.attack(
    7,
    "one of two private seeds links to the other, to another port and to MGMT",
    "each seed is asked for its own pages; the others are asked for nothing",
)
def test_each_seed_has_its_own_permission(database: str, tmp_path: Path) -> None:
    data, ports = tmp_path / "data", {name: free_port() for name in PORTS}
    data.mkdir()
    (data / "ports.json").write_text(json.dumps(ports))
    with ExitStack() as stack:
        one, other, two = (
            stack.enter_context(Website(host=host))
            for host in ("127.0.5.1", "127.0.5.1", "127.0.5.2")
        )
        own = [f"http://127.0.0.1:{ports[name]}/healthz" for name in ("mgmt", "front")]
        leads = [two.url("/secret"), other.url("/secret"), *own]
        one.add("/", page("One", "".join(f'<a href="{there}">x</a>' for there in leads)))
        two.add_all({"/": page("Two", '<a href="/own">x</a>'), "/*": page("Its own")})
        words = ("crawl", one.url("/"), two.url("/"), "--delay", "0", "--then", "end")
        with show(data, *words, dsn=database) as crawl:
            assert crawl.ends(120) == 0, crawl.logs
        assert asked(one) == {"/robots.txt", "/"}
        assert asked(two) == {"/robots.txt", "/", "/own"}
        assert other.log == []
    pinned = [
        (f"{site.host}:{site.port}", site.port, [ip_address(site.host)]) for site in (one, two)
    ]
    with psycopg.connect(database) as conn:
        rows = conn.execute("select host, port, addresses from work.private_access").fetchall()
        known = conn.execute("select name from work.hosts").fetchall()
    assert sorted(rows) == sorted(pinned)
    assert {name for (name,) in known} == {host for host, *_ in pinned}


def test_the_operator_gives_and_takes_permissions(database: str) -> None:
    def at(*words: str) -> Ran:
        return usher(*words, environment={"DATABASE_URL": database})

    def allowed(name: str) -> list[tuple[int, list[str]]]:
        private = at("hosts", "show", name, "--json").json["private"]
        return [(access["port"], access["addresses"]) for access in private]

    at("add", "http://127.0.5.1/", "http://127.0.5.1:8080/", "http://93.184.216.34/")
    assert at("hosts", "set", "127.0.5.1", "http://127.0.5.1:8080/", "--allow-private").code == 0
    assert at("hosts", "set", "https://127.0.5.1/", "--allow-private").code == 0
    assert allowed("127.0.5.1") == [(80, ["127.0.5.1"]), (443, ["127.0.5.1"])]
    assert allowed("127.0.5.1:8080") == [(8080, ["127.0.5.1"])]
    said = at("explain", "http://127.0.5.1/x").out
    assert "port 80 at 127.0.5.1 is allowed" in said
    assert "links from other hosts are refused (private_host)" in said
    assert at("hosts", "set", "127.0.5.1", "--no-allow-private").code == 0
    assert allowed("127.0.5.1") == []
    assert (
        "grant it with `usher hosts set URL --allow-private`"
        in at("explain", "http://127.0.5.1/x").out
    )
    public = at("hosts", "set", "93.184.216.34", "--allow-private")
    assert (public.code, "has no private address" in public.err) == (2, True)
