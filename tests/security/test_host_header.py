"""Attacks with the Host header on every kind of HTTP server we run (finding 10)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.mgmt.mgmt_process import mgmt
from support.site.raw_http import send_raw
from usher.http.server.component import GuardOptions, serve_component
from usher.http.server.listen import read_bind

ANY = read_bind("127.0.0.1:0")


@pytest.fixture
async def mgmt_address(database: str, tmp_path: Path) -> AsyncIterator[str]:
    with mgmt(database, tmp_path / "log") as running:
        yield running.address


@pytest.fixture
async def component() -> AsyncIterator[str]:
    async with serve_component([], ANY) as address:
        yield address


@pytest.fixture
async def open_component() -> AsyncIterator[str]:
    """It answers to any name."""
    async with serve_component([], ANY, options=GuardOptions(insecure=True)) as address:
        yield address


async def status(address: str, *headers: bytes, version: bytes = b"1.1") -> tuple[int, str]:
    head = b"GET /healthz HTTP/%s\r\nConnection: close\r\n" % version
    answer = await send_raw(
        address, head, b"".join(header + b"\r\n" for header in headers), b"\r\n"
    )
    return (200, "") if answer.status == 200 else answer.problem


@pytest.mark.attack(10, "call us evil.localhost", "403: only localhost and addresses are our names")
async def test_a_subdomain_of_localhost_is_not_ours(component: str, mgmt_address: str) -> None:
    for address in (component, mgmt_address):
        for host in (b"evil.localhost", b"evil.localhost:80", b"localhost.", b".localhost"):
            assert await status(address, b"Host: " + host) == (403, "not_allowed")
        for host in (b"localhost", b"LocalHost:80", b"127.0.0.1:80", b"[::1]:80", b"192.0.2.1"):
            assert await status(address, b"Host: " + host) == (200, "")


@pytest.mark.attack(10, "send no Host, an empty one or two", "400, also where any name is allowed")
async def test_exactly_one_host_is_required(
    component: str, mgmt_address: str, open_component: str
) -> None:
    for address in (component, mgmt_address, open_component):
        for hosts in (
            [],
            [b"Host:"],
            [b"Host:  "],
            [b"Host: :80"],
            [b"Host: localhost", b"Host: localhost"],
            [b"Host: localhost", b"hOST: evil.example"],
            [b"Host: localhost", b"Host:"],
        ):
            assert await status(address, *hosts) == (400, "bad_host")
        for hosts in ([b"Host:"], [b"Host: localhost", b"Host: localhost"]):
            assert await status(address, *hosts, version=b"1.0") == (400, "bad_host")


async def test_probes_of_load_balancers_need_no_host(
    component: str, mgmt_address: str, open_component: str
) -> None:
    for address in (component, mgmt_address, open_component):
        assert await status(address, version=b"1.0") == (200, "")
