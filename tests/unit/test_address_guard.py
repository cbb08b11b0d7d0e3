"""The guard refuses every address that is not public, in any notation."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.crawl.http.address_guard import BAD_PORTS, refusal_reason
from usher.errors import BadInput
from usher.private_hosts import AllowList, AllowListEntry, parse_allow_list

NONE = AllowList()
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.167.1.1",
    "198.17.1.1", "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450::1", "2001:200::1", "2003::1",
    "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
]  # fmt: skip
SPECIAL = {
    "0.0.0.0": "no address of a host",
    "0.1.2.3": "no address of a host",
    "10.0.0.1": "a private address",
    "100.64.0.1": "a provider's private address",
    "100.100.100.200": "a cloud's metadata service",
    "127.0.0.1": "this machine itself",
    "127.255.255.254": "this machine itself",
    "168.63.129.16": "a cloud's metadata service",
    "169.254.1.1": "a link-local address",
    "169.254.169.254": "a cloud's metadata service",
    "172.16.0.1": "a private address",
    "172.31.255.255": "a private address",
    "192.0.0.8": "a reserved address",
    "192.0.2.1": "an address for examples",
    "192.88.99.1": "a relay of old tunnels",
    "192.168.1.1": "a private address",
    "198.18.0.1": "an address for benchmarks",
    "224.0.0.1": "a multicast address",
    "240.0.0.1": "a reserved address",
    "255.255.255.255": "the broadcast address",
    "::": "no address of a host",
    "::1": "this machine itself",
    "::127.0.0.1": "no public address",
    "::ffff:127.0.0.1": "this machine itself",
    "::ffff:169.254.169.254": "a cloud's metadata service",
    "::ffff:0:127.0.0.1": "no public address",
    "64:ff9b::7f00:1": "this machine itself",
    "64:ff9b::10.1.2.3": "a private address",
    "64:ff9b:1::1": "a private address",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "a tunnel",
    "2001:db8::1": "an address for examples",
    "2001:20::1": "a reserved address",
    "2002:7f00:1::1": "a tunnel",
    "2002:a9fe:a9fe::1": "a tunnel",
    "3fff::1": "an address for examples",
    "5f00::1": "no public address",
    "4000::1": "no public address",
    "100::1": "no public address",
    "fc00::1": "a private address",
    "fd00:ec2::254": "a cloud's metadata service",
    "fe80::1": "a link-local address",
    "fe80::1%eth0": "a link-local address",
    "fec0::1": "a private address",
    "ff02::1": "a multicast address",
}
UNREADABLE = [
    "*", "*.", "a b*c", "10.0.0.0/33", "1.2.3", "300.1.1.1", "host:", "host:0", "host:65536", "host:x", "[::1",
    "[::1]x",
    "[::1]:", "::1/200", "http://x", "x/y", "-:-", "a..b", "é", "*.*.x", "\0", "host:\u0661", "[]",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal_reason(NONE, "example.org", address, 443) == ""


@pytest.mark.parametrize(("address", "what"), SPECIAL.items())
def test_other_addresses_are_refused(address: str, what: str) -> None:
    assert refusal_reason(NONE, "example.org", address, 80) == f"{address} is {what}"


@pytest.mark.parametrize("port", sorted(BAD_PORTS))
def test_ports_of_other_services_are_refused(port: int) -> None:
    assert refusal_reason(NONE, "example.org", "1.1.1.1", port) == f"port {port} is not a web port"


@pytest.mark.parametrize("port", [80, 443, 8000, 8080, 8443, 3000, 5000, 9200, 65535])
def test_other_ports_are_allowed(port: int) -> None:
    assert refusal_reason(NONE, "example.org", "1.1.1.1", port) == ""


@pytest.mark.parametrize(
    ("text", "host", "address", "port"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", 8080),
        ("127.0.0.1", "localhost", "127.0.0.1", 8080),
        ("127.0.0.1", "localhost", "::ffff:127.0.0.1", 8080),
        ("10.0.0.0/8, 127.0.0.1", "10.9.8.7", "10.9.8.7", 80),
        ("10.1.2.3/8", "10.9.8.7", "10.9.8.7", 80),
        ("localhost", "localhost", "::1", 80),
        ("LocalHost.", "localhost", "::1", 80),
        ("*.local", "printer.local", "192.168.0.9", 631),
        ("*.local", "a.b.local", "192.168.0.9", 80),
        ("::1", "::1", "::1", 80),
        ("fd00::/8", "fd12::1", "fd12::1", 80),
        ("[fd00::/8]:8080", "fd12::1", "fd12::1", 8080),
        ("[::1]:8080\n[::1]:9090", "::1", "::1", 9090),
        ("127.0.0.1:22", "127.0.0.1", "127.0.0.1", 22),
        ("example.org:22", "example.org", "1.1.1.1", 22),
        ("127.0.0.0/8:8080", "127.1.1.1", "127.1.1.1", 8080),
        ("fe80::/10", "fe80::1", "fe80::1%eth0", 80),
        ("127.0.0.0/8", "wiki.localhost", "127.0.0.1", 80),
    ],
)
def test_listed_private_hosts_are_allowed(text: str, host: str, address: str, port: int) -> None:
    assert refusal_reason(parse_allow_list(text), host, address, port) == ""


@pytest.mark.parametrize(
    ("text", "host", "address", "port"),
    [
        ("", "127.0.0.1", "127.0.0.1", 80),
        ("127.0.0.1", "127.0.0.1", "127.0.0.2", 80),
        ("127.0.0.1", "localhost", "::1", 80),
        ("localhost", "localhost.evil.org", "127.0.0.1", 80),
        ("localhost", "evil.org", "127.0.0.1", 80),
        ("*.local", "local", "127.0.0.1", 80),
        ("*.local", "evillocal", "127.0.0.1", 80),
        ("127.0.0.1:8080", "127.0.0.1", "127.0.0.1", 8081),
        ("localhost:8080", "localhost", "127.0.0.1", 80),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", 22),
        ("0.0.0.0/0", "::1", "::1", 80),
        ("10.0.0.0/8", "evil.org", "10.9.8.7", 80),
        ("127.0.0.0/8", "evil.org", "::ffff:127.0.0.1", 80),
        ("127.0.0.0/8", "localhost.evil.org", "127.0.0.1", 80),
    ],
)
def test_unlisted_private_hosts_are_refused(text: str, host: str, address: str, port: int) -> None:
    assert refusal_reason(parse_allow_list(text), host, address, port)


def test_a_list_is_parsed_with_any_spacing() -> None:
    assert parse_allow_list(" a.b ,\n*.c:80  ") == AllowList(
        (AllowListEntry("a.b"), AllowListEntry(".c", port=80))
    )
    assert parse_allow_list(" , ") == NONE


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_invalid_list_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match="is not a host, an address or a network") as caught:
        parse_allow_list(text)
    assert "*.local" in caught.value.hint


@given(st.text(max_size=60))
def test_any_text_is_a_list_or_bad_input(text: str) -> None:
    try:
        allowed = parse_allow_list(text)
    except BadInput:
        return
    assert refusal_reason(allowed, "example.org", "1.1.1.1", 80) == ""


# What Python knows of addresses differs from release to release, so it only has to agree in one direction.
@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_special_addresses_of_python_are_refused(address: IPv4Address | IPv6Address) -> None:
    refused = bool(refusal_reason(NONE, "example.org", str(address), 80))
    wrapped = isinstance(address, IPv6Address) and (
        address.ipv4_mapped or address.packed[:2] == b"\0\x64"
    )
    if not wrapped and (address.is_private or address.is_multicast or address.is_reserved):
        assert refused


@given(st.ip_addresses(v=4))
def test_wrapped_ipv4_addresses_are_treated_alike(address: IPv4Address) -> None:
    plain = bool(refusal_reason(NONE, "x", str(address), 80))
    for wrapped in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert bool(refusal_reason(NONE, "x", str(ip_address(wrapped)), 80)) == plain
