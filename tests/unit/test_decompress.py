"""Content codings are removed, damage is reported, and no bomb exceeds the limit."""

import gzip
import random
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.site.crooked_http import PACKED
from support.site.hostile import CODED, SQUEEZED
from support.site.website import Request, Response
from usher.crawl.http.decoders import DECODERS, brotli
from usher.crawl.http.decompress import decompress

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 1_000_000
PAGES = CODED | PACKED
PLAIN = [
    "/gzip/page", "/gzip/joined", "/gzip/junk", "/gzip/once-said-twice", "/gzip/not", "/deflate/page", "/deflate/raw",
    "/deflate/not", "/zstd/page", "/zstd/joined", "/zstd/not", "/br/not", "/coding/none", "/coding/stack",
]  # fmt: skip
BROKEN = {
    "/gzip/broken": "the gzip data is damaged",
    "/gzip/cut": "the gzip data is truncated",
    "/gzip/members": "the gzip data has more than 1000 members",
    "/zstd/wide": "the zstd data is damaged",
    "/coding/unknown": "unknown encoding 'rot13'",
    "/coding/too-many": "more than 3 nested encodings",
    "/gzip/bomb": "the gzip data is a bomb: 4.1 kB decompress to more than 1 MB",
    "/gzip/bomb-twice": "the gzip data is a bomb: 387 bytes decompress to more than 1 MB",
    "/zstd/bomb": "the zstd data is a bomb: 4.1 kB decompress to more than 1 MB",
    "/br/bomb": "the br data is a bomb: 203 bytes decompress to more than 1 MB",
}
PACK = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


def packed(path: str) -> tuple[bytes, str]:
    page = PAGES[path]
    answer = page(Request("GET", path, {}, 0.0)) if callable(page) else page
    assert isinstance(answer, Response)
    return answer.body, answer.headers["Content-Encoding"]


@pytest.mark.parametrize("path", PLAIN)
def test_a_page_is_decompressed(path: str) -> None:
    unpacked = decompress(*packed(path), LIMIT)
    assert (unpacked.body, unpacked.kind, unpacked.words) == (SQUEEZED, "", "")


@pytest.mark.parametrize(("path", "words"), BROKEN.items())
def test_a_failure_has_a_reason(path: str, words: str) -> None:
    unpacked = decompress(*packed(path), LIMIT)
    assert (unpacked.kind, unpacked.words) == ("encoding", words)


def test_data_before_the_damage_is_kept() -> None:
    assert SQUEEZED.startswith(decompress(*packed("/gzip/cut"), LIMIT).body)
    assert len(decompress(*packed("/gzip/cut"), LIMIT).body) > 100


@pytest.mark.parametrize("name", PACK)
def test_a_long_page_is_cut_at_the_limit(name: str) -> None:
    text = random.Random(1).randbytes(300_000)  # noqa: S311 - it must not be packed small
    assert decompress(PACK[name](text), name, 300_000).body == text
    unpacked = decompress(PACK[name](text), name, 299_999)
    assert unpacked.body == text[:-1]
    assert (unpacked.kind, unpacked.words) == ("body", "the body decompresses to more than 300 kB")


@pytest.mark.parametrize("path", ["/gzip/bomb", "/gzip/bomb-twice", "/zstd/bomb", "/br/bomb"])
def test_a_bomb_costs_no_more_than_the_limit(path: str) -> None:
    raw, coding = packed(path)
    tracemalloc.start()
    decompress(raw, coding, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * LIMIT


@given(st.binary(max_size=3000), st.lists(st.sampled_from(sorted(PACK)), max_size=3))
def test_compressed_data_round_trips(text: bytes, names: list[str]) -> None:
    raw = text
    for name in names:
        raw = PACK[name](raw)
    unpacked = decompress(raw, ", ".join(names), LIMIT)
    assert (unpacked.body, unpacked.kind) == (text, "")


@given(
    st.sampled_from(sorted(DECODERS)), st.binary(max_size=300), st.binary(max_size=30), st.data()
)
def test_nothing_raises(name: str, text: bytes, noise: bytes, data: st.DataObject) -> None:
    raw = PACK[name.removeprefix("x-")](text)
    at = data.draw(st.integers(0, len(raw)))
    unpacked = decompress(raw[:at] + noise + raw[at + len(noise) :], name, 200)
    assert len(unpacked.body) <= 200


@given(st.text(max_size=40))
def test_any_header_has_a_result(coding: str) -> None:
    unpacked = decompress(SQUEEZED, coding, LIMIT)
    assert unpacked.kind in ("", "encoding")
