"""Numbers round-trip, ranges contain the right hosts, names split and join."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usher.domain64 import (
    FIXED_TLDS,
    MAX,
    OTHER,
    HostName,
    Parts,
    Range,
    decode,
    domain_range,
    encode,
    from_hex,
    host_range,
    join,
    split,
    tld_range,
    to_hex,
)
from usher.urls import Url, parse

LAST = 0xFFFFFF

# Numbers Jemison has published, so that its hosts can be imported as they are.
VECTORS = [
    (Parts(1, 0x24, 0), 72057748656750592, "0100002400000000"),
    (Parts(1, 0xB2, 0), 72058358542106624, "010000B200000000"),
    (Parts(1, 0x4A, 1), 72057911865508096, "0100004A00000100"),
    (Parts(1, 0x87, 1), 72058173858513152, "0100008700000100"),
    (Parts(1, 0x64, 0xA), 72058023534660096, "0100006400000A00"),
    (Parts(3, 2, 1), 216172790703718656, "0300000200000100"),
    (Parts(6, 6, 1), 432345589997371648, "0600000600000100"),
    (Parts(OTHER, LAST, LAST, 0xFF), MAX, "7FFFFFFFFFFFFFFF"),
]

NO_NUMBERS = [
    *("", "0", "FF", "8000008700000100", "FFFFFFFFFFFFFFFF", "00100008700000100"),
    *("+10000870000010", "0x100008700000100", "0100_00870000010", "g100008700000100"),
    *(" 100008700000100", "100008700000100\n", "\u0661" * 15, "\0", "\ud800"),
]

SPLITS = {
    "nasa.gov": HostName("gov", "nasa", ""),
    "blogs.nasa.gov": HostName("gov", "nasa", "blogs"),
    "a.b.nasa.gov": HostName("gov", "nasa", "a.b"),
    "nasa.gov:8080": HostName("gov", "nasa", ":8080"),
    "www.nasa.gov:8080": HostName("gov", "nasa", "www:8080"),
    "bbc.co.uk": HostName("uk", "bbc.co", ""),
    "www.bbc.co.uk": HostName("uk", "bbc.co", "www"),
    "x.y.kobe.jp": HostName("jp", "x.y.kobe", ""),
    "www.city.kobe.jp": HostName("jp", "city.kobe", "www"),
    "www.xn--bcher-kva.de": HostName("de", "xn--bcher-kva", "www"),
    "a.b.xn--55qx5d.cn": HostName("cn", "b.xn--55qx5d", "a"),
    "www.stuff_1.com": HostName("com", "stuff_1", "www"),
    "a.b.unheard-of": HostName("unheard-of", "b", "a"),
    # a public suffix is a domain beside its customers' domains
    "co.uk": HostName("uk", "co", ""),
    "co.uk:81": HostName("uk", "co", ":81"),
    "github.io": HostName("io", "github", ""),
    "me.github.io": HostName("io", "me.github", ""),
    "www.me.github.io": HostName("io", "me.github", "www"),
    # no TLD
    "gov": HostName("", "gov", ""),
    "localhost": HostName("", "localhost", ""),
    "localhost:8000": HostName("", "localhost", ":8000"),
    "10.0.0.1": HostName("", "10.0.0.1", ""),
    "10.0.0.1:8000": HostName("", "10.0.0.1", ":8000"),
    "[::1]": HostName("", "[::1]", ""),
    "[fe80::1:2]:8000": HostName("", "[fe80::1:2]", ":8000"),
}

NUMBERS = st.integers(0, LAST) | st.sampled_from([0, 1, LAST - 1, LAST])
TLDS = st.integers(1, OTHER) | st.sampled_from([1, OTHER - 1, OTHER])
PARTS = st.builds(Parts, TLDS, NUMBERS, NUMBERS, st.integers(0, 0xFF))
HOSTS = st.builds(Parts, TLDS, NUMBERS, NUMBERS)

LABELS = st.text("abz059_-", min_size=1, max_size=6)
PUBLIC = (
    "gov com uk co.uk jp kobe.jp city.kobe.jp github.io ck www.ck xn--p1ai k12.ca.us unheard-of"
)
NAMES = st.tuples(st.lists(LABELS, max_size=4), st.sampled_from(PUBLIC.split()))
ALONE = st.sampled_from(["localhost", "10.0.0.1", "[::1]", "[fe80::9:8]", "a", "com"])
PORTS = st.just("") | st.integers(1, 65_535).map(lambda port: f":{port}")
ADDRESSES = st.tuples(NAMES.map(lambda name: ".".join([*name[0], name[1]])) | ALONE, PORTS)


def test_the_first_six_tlds_and_the_last_are_fixed() -> None:
    assert dict(FIXED_TLDS) == {"gov": 1, "mil": 2, "com": 3, "edu": 4, "net": 5, "org": 6}
    assert OTHER == 127


@pytest.mark.parametrize(("parts", "value", "text"), VECTORS)
def test_published_numbers(parts: Parts, value: int, text: str) -> None:
    assert encode(parts) == value
    assert decode(value) == parts
    assert to_hex(value) == text
    assert from_hex(text) == value


@pytest.mark.parametrize("text", ["100008700000100", "0100008700000100", "7abcdef00000100"])
def test_hex_is_read_short_and_in_any_case(text: str) -> None:
    assert from_hex(text) == from_hex(text.upper()) == int(text, 16)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((0, 1, 1), "tld"),
        ((-1, 1, 1), "tld"),
        ((128, 1, 1), "tld"),
        ((1, -1, 1), "domain"),
        ((1, LAST + 1, 1), "domain"),
        ((1, 1, -1), "subdomain"),
        ((1, 1, LAST + 1), "subdomain"),
        ((1, 1, 1, -1), "reserved"),
        ((1, 1, 1, 256), "reserved"),
    ],
)
def test_a_field_out_of_range_is_named(fields: tuple[int, ...], named: str) -> None:
    with pytest.raises(ValueError, match=f"domain64: {named} must be"):
        Parts(*fields)


@pytest.mark.parametrize("value", [0, -1, -(2**63), 1, 2**56 - 1, MAX + 1, 0x80 << 56])
def test_a_number_that_is_no_domain64_is_refused(value: int) -> None:
    for read in (decode, to_hex):
        with pytest.raises(ValueError, match="domain64"):
            read(value)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_text_that_is_no_domain64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="domain64") as caught:
        from_hex(text)
    assert str(caught.value).isascii()


@given(PARTS)
def test_numbers_survive_every_writing(parts: Parts) -> None:
    value = encode(parts)
    assert 0 < value <= MAX
    assert decode(value) == parts
    assert len(to_hex(value)) == 16
    assert from_hex(to_hex(value)) == from_hex(f"{value:x}") == value


@given(PARTS, PARTS)
def test_numbers_and_texts_sort_as_their_parts(one: Parts, other: Parts) -> None:
    low, high = encode(one), encode(other)
    assert (one < other) == (low < high) == (to_hex(low) < to_hex(high))


def test_a_range_ends_before_its_end() -> None:
    assert [value for value in range(5) if value in Range(1, 3)] == [1, 2]


def test_published_ranges() -> None:
    assert tld_range(1) == Range(72057594037927936, 144115188075855872)
    assert domain_range(1, 0x87) == Range(72058173858512896, 72058178153480192)
    assert host_range(1, 0x87, 1) == Range(72058173858513152, 72058173858513408)


def test_ranges_meet_and_the_last_one_fits_a_bigint() -> None:
    assert tld_range(1).end == tld_range(2).start
    assert domain_range(1, LAST).end == tld_range(1).end
    assert host_range(1, 2, LAST).end == domain_range(1, 2).end == domain_range(1, 3).start
    for last in (tld_range(OTHER), domain_range(OTHER, LAST), host_range(OTHER, LAST, LAST)):
        assert last.end == MAX
        assert encode(Parts(OTHER, LAST, LAST)) in last


@given(HOSTS, HOSTS)
def test_a_range_holds_its_own_hosts_and_no_other(one: Parts, other: Parts) -> None:
    value = encode(other)
    tld, domain, subdomain = one.tld, one.domain, one.subdomain
    assert (value in tld_range(tld)) == (other.tld == tld)
    assert (value in domain_range(tld, domain)) == ((other.tld, other.domain) == (tld, domain))
    assert (value in host_range(tld, domain, subdomain)) == (other == one)


@given(HOSTS)
def test_narrower_ranges_lie_inside_wider_ones(host: Parts) -> None:
    inner = host_range(host.tld, host.domain, host.subdomain)
    middle = domain_range(host.tld, host.domain)
    outer = tld_range(host.tld)
    assert outer.start <= middle.start <= inner.start < inner.end <= middle.end <= outer.end
    assert encode(host) in inner


@pytest.mark.parametrize("bad", [0, 128, -1])
def test_there_is_no_range_of_an_impossible_tld(bad: int) -> None:
    with pytest.raises(ValueError, match="tld"):
        tld_range(bad)


@pytest.mark.parametrize(("host", "name"), SPLITS.items())
def test_hosts_split_by_the_public_suffix_list(host: str, name: HostName) -> None:
    assert split(host) == name
    assert join(name) == host


def test_under_other_the_domain_is_the_whole_registrable_name() -> None:
    assert split("www.bbc.co.uk:81").under_other() == HostName("", "bbc.co.uk", "www:81")
    assert split("co.uk").under_other() == HostName("", "co.uk", "")
    assert split("10.0.0.1").under_other() == HostName("", "10.0.0.1", "")


@settings(max_examples=300, deadline=None)
@given(ADDRESSES)
def test_every_canonical_host_survives_split_and_join(address: tuple[str, str]) -> None:
    url = parse(f"https://{''.join(address)}/")
    assert isinstance(url, Url)
    name = split(url.host)
    assert join(name) == join(name.under_other()) == url.host
    assert name.domain
    assert "." not in name.tld
    assert name.under_other().tld == ""


@settings(max_examples=200, deadline=None)
@given(LABELS, st.sampled_from(["nasa.gov", "bbc.co.uk", "me.github.io"]), PORTS)
def test_all_hosts_of_a_registrable_name_share_its_domain(sub: str, owner: str, port: str) -> None:
    apex, host = split(owner), split(f"{sub}.{owner}{port}")
    assert (host.tld, host.domain) == (apex.tld, apex.domain)
    assert host.subdomain == f"{sub}{port}"


def test_the_suffix_list_is_not_read_at_import() -> None:
    code = "from usher import domain64 as d; print(d._suffixes.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
