"""Connections to private addresses: one port, pinned addresses, no names in networks, never Usher's own ports."""

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.processes.namespaces import PUBLIC, in_namespace, needs_root
from support.site.fetches import AGENT, QUICK, url
from support.site.hostile import page
from support.site.website import Response, Website
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.http.fetch import Fetcher
from usher.crawl.own_endpoints import own_endpoints
from usher.crawl.page_visit import PageVisit, PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.messages.crawler import PageToFetch
from usher.private_hosts import AllowList, HostPermission, parse_allow_list
from usher.settings import Settings

PRIVATE = "127.0.5.1"


class Resolver:
    """A name server whose owner changes the answers."""

    def __init__(self, **names: str) -> None:
        self.names = {f"{name}.test": [address] for name, address in names.items()}

    def __call__(self, name: str) -> Sequence[str]:
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return self.names[name]


def client(resolver: Resolver, allow: str = "", own: Sequence[str] = ()) -> Fetcher:
    settings = Settings(data=Path(os.devnull), mgmt_url="http://127.0.0.1:1")
    return Fetcher(
        AGENT,
        limits=QUICK,
        allow=parse_allow_list(allow) if allow else AllowList(),
        own=own_endpoints(settings, own),
        lookup=resolver,
    )


@pytest.mark.attack(
    7,
    "a page of a named private host leads to another port of the same address",
    "the connection is refused, and the message says what to type",
)
async def test_a_permission_is_for_one_port() -> None:
    with Website(host=PRIVATE) as named, Website(host=PRIVATE) as other:
        permission = HostPermission(PRIVATE, named.port, (PRIVATE,))
        async with client(Resolver()) as fetcher:
            first = await fetcher.get(url(named.url("/x")), permission=permission)
            second = await fetcher.get(url(other.url("/x")), permission=permission)
        assert (first.status, second.kind, other.log) == (404, "private", [])
        assert f"to crawl it, run: usher add http://{PRIVATE}:{other.port}/" in second.error


@pytest.mark.attack(
    7,
    "a named private host changes its address after the operator named it",
    "only the address that it had then is connected to",
)
async def test_a_permission_is_for_the_addresses_of_that_time() -> None:
    resolver = Resolver(wiki="127.0.5.2")
    with Website(host="127.0.5.1") as then, Website(host="127.0.5.2", port=then.port) as now:
        permission = HostPermission("wiki.test", then.port, ("127.0.5.1",))
        async with client(resolver) as fetcher:
            answer = await fetcher.get(url(f"http://wiki.test:{then.port}/"), permission=permission)
        assert (answer.kind, now.log, then.log) == ("private", [], [])


@pytest.mark.attack(
    7,
    "a public name resolves to an address of a network that allow_private lists",
    "the connection is refused: a name must be listed itself",
)
async def test_a_listed_network_opens_no_names() -> None:
    with Website(host=PRIVATE) as site:
        async with client(Resolver(evil=PRIVATE), "127.0.0.0/8") as fetcher:
            answer = await fetcher.get(url(f"http://evil.test:{site.port}/"))
            by_address = await fetcher.get(url(site.url("/")))
        assert (answer.kind, by_address.status, len(site.log)) == ("private", 404, 1)


@pytest.mark.attack(
    7,
    "a request without permission uses a connection that was opened with one",
    "the connection is not shared; a new one is refused",
)
async def test_connections_are_not_shared_with_requests_without_permission() -> None:
    with Website(host=PRIVATE) as site:
        permission = HostPermission(PRIVATE, site.port, (PRIVATE,))
        async with client(Resolver()) as fetcher:
            assert (await fetcher.get(url(site.url("/")), permission=permission)).status == 404
            answer = await fetcher.get(url(site.url("/stolen")))
        assert (answer.kind, {request.path for request in site.log}) == ("private", {"/"})


OWN_FORMS = ("127.0.0.1", "localhost", "0.0.0.0", "2130706433", "0x7f.1", "[::ffff:7f00:1]")


@pytest.mark.attack(
    7,
    "a permitted page leads to a port of Usher itself, in any form of the address",
    "the connection is refused",
)
@pytest.mark.parametrize("form", [*OWN_FORMS, "127.9.9.9", "mgmt.test"])
async def test_ports_of_usher_itself_are_never_connected_to(form: str) -> None:
    listed = "127.0.0.0/8, 0.0.0.0, *.test, localhost"
    with Website(host="0.0.0.0") as own:
        resolver = Resolver(mgmt="127.0.0.1")
        resolver.names["localhost"] = ["127.0.0.1"]
        async with client(resolver, listed, [f"127.0.0.1:{own.port}"]) as fetcher:
            answer = await fetcher.get(url(f"http://{form}:{own.port}/v1/jobs"))
        assert (answer.kind, own.log) == ("own", [])


def test_the_ports_of_a_data_directory_are_usher_itself(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text('{"mgmt": 8411, "front": 8400, "site": 8499}')
    settings = Settings(
        data=tmp_path,
        mgmt_url="https://mgmt.test",
        database_url="postgresql://u:p@db.test:5433/x",
        pg_port=5999,
    )
    found = {(one.host, one.port) for one in own_endpoints(settings, ["10.0.0.7:8421"])}
    assert found == {
        ("mgmt.test", 443),
        ("db.test", 5433),
        ("127.0.0.1", 8411),
        ("127.0.0.1", 8400),
        ("127.0.0.1", 5999),
        ("10.0.0.7", 8421),
    }


def visited(*paths: str) -> list[PageVisit]:
    """What a crawler that lists the name intra.test sees on a public site."""
    body = '<a href="http://intra.test/x">x</a><a href="/own">x</a>'
    entries = "".join(f"<url><loc>{there}</loc></url>" for there in ("http://intra.test/y", "/own"))
    pages = {
        "/": page("A public page", body),
        "/map.xml": Response(
            f"<urlset>{entries}</urlset>".encode(), content_type="application/xml"
        ),
    }

    async def visit() -> list[PageVisit]:
        with Website(pages, host=PUBLIC, port=80) as site:
            async with (
                client(Resolver(intra=PRIVATE), "intra.test") as fetcher,
                PageVisitor(PolitenessPolicy(fetcher)) as visitor,
            ):
                lease = ChunkLease(asyncio.get_running_loop().time() + 60)
                seen = [
                    await visitor.visit(PageToFetch(site.url(path), 0), lease) for path in paths
                ]
        return [one for one in seen if one is not None]

    return in_namespace(lambda: asyncio.run(visit()))


@needs_root
@pytest.mark.attack(
    7,
    "a public page leads to a private name that only the crawler's own setting lists",
    "the crawler leaves these links out and says so",
)
def test_the_crawler_reports_no_links_to_private_names() -> None:
    seen, listed = visited("/", "/map.xml")
    own = f"http://{PUBLIC}/own"
    assert (seen.outcome.links, seen.outcome.page.result) == ([own], "success")
    assert seen.outcome.page.reason == "links to private hosts left out: 1"
    assert listed.sitemap is not None
    assert ([entry.url for entry in listed.sitemap.pages], listed.sitemap.skipped) == ([own], 1)
