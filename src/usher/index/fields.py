"""The schema of the Tantivy index, and the conversion of documents."""

import threading
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Final, cast

import msgspec
import tantivy
import zstandard
from msgspec import Struct

from usher.index.analyzers import stems_of
from usher.index.document import IndexDocument, IndexSection, site_names
from usher.index.page_prior import page_prior
from usher.index.section_names import page_names, section_heading, section_names
from usher.query.compounds import other_spellings
from usher.query.results import Hit, ScoreReason
from usher.query.tokens import space_words

TITLE: Final = "title"
HEADINGS: Final = "headings"
ANCHORS: Final = "anchors"
BODY: Final = "body"
URL: Final = "url"
REST: Final = "rest"
INDEX_VERSION: Final = (
    2  # another one if the same fields get other words; an index server then loads its chunks again
)
TEXT_FIELDS: Final = (TITLE, HEADINGS, ANCHORS, BODY, URL, REST)
STEMS: Final = "stems"  # of title, headings, anchors and body together, as in BM25F
TITLE_STEMS: Final = "title_stems"
SECTION_STEMS: Final = "section_stems"  # of the headings of sections
NAMES: Final = "names"  # of the page and its sections
STORED_FIELDS, TEXT, SECTIONS = "kept", "text", "sections"  # stored values
LENGTH: Final = "length"  # words of a document
PRIOR: Final = "prior"  # factor for the scores of a document
TITLE_TIMES: Final = 3  # a word of the title counts as so many of the body
FILLER_WORD: Final = "X"  # queries are in lower case
_HEADING_GAP: Final = (
    f"\n{FILLER_WORD} {FILLER_WORD} {FILLER_WORD}\n"  # more words than may stand within a pair
)
# All non-ASCII characters count as letters. This is wrong for about one word in fifty, on every server alike.
_ASCII: Final = 128
_LETTERS: Final = bytes(b"a "[n < _ASCII and not chr(n).isalnum()] for n in range(256))
_ZSTD_LEVEL: Final = 1  # smaller than Tantivy's own lz4 at the same speed


class StoredFields(Struct, frozen=True, array_like=True):
    """The stored fields of a hit, in the order of `Hit`."""

    key: str
    url: str
    title: str
    host: str
    chunk: int
    crawled: datetime
    published: datetime | None
    language: str
    description: str
    canonical: str
    simhash: int
    text64: int

    def hit(
        self, score: float, *, weak: bool = False, reasons: tuple[ScoreReason, ...] = ()
    ) -> Hit:
        values = msgspec.structs.asdict(self)
        return Hit(score=score, weak=weak, reasons=reasons, **values)


class _Zstd(threading.local):
    """The compressors of one thread; they are not thread-safe."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd: Final = _Zstd()
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredFields).decode
_decode_sections: Final = msgspec.msgpack.Decoder(tuple[IndexSection, ...]).decode


@cache
def schema() -> tantivy.Schema:
    """The schema, of which the version of the index is a part.

    Only the marker document of a chunk has `loaded`, which says that the chunk is complete.
    """
    builder = tantivy.SchemaBuilder()
    for name in TEXT_FIELDS:
        builder.add_text_field(name, tokenizer_name="words")
    for name in (STEMS, TITLE_STEMS):
        builder.add_text_field(name, tokenizer_name="stems", index_option="freq")
    builder.add_text_field(SECTION_STEMS, tokenizer_name="stems")
    for name in (NAMES, "site", "language", "chunk", "address", "copy", "loaded"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("host", tokenizer_name="raw", index_option="basic", fast=True)
    builder.add_unsigned_field("domain64", fast=True)
    builder.add_unsigned_field(LENGTH, fast=True)
    builder.add_float_field(PRIOR, fast=True)
    builder.add_integer_field("published", fast=True)
    builder.add_integer_field("crawled", fast=True)
    builder.add_unsigned_field("inlinks", indexed=True, fast=True)
    builder.add_unsigned_field("depth", indexed=True, fast=True)
    builder.add_unsigned_field(f"version{INDEX_VERSION}")  # no document has it
    for name in (STORED_FIELDS, TEXT, SECTIONS):
        builder.add_bytes_field(name, stored=True)
    return builder.build()


def page_version(key: str, chunk: int) -> str:
    """Identifies the version of a page that came with a chunk."""
    return f"{key}\n{chunk}"


def microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def searchable_texts(document: IndexDocument) -> dict[str, str]:
    """The texts in which words are searched, by field, with the other spellings of compounds."""
    return {
        TITLE: _spelt(document.title),
        HEADINGS: _spelt("\n".join(document.headings)),
        ANCHORS: _spelt(anchor_field(document)),
        BODY: _spelt(document.body),
        URL: space_words(document.url),
        REST: space_words(document.rest),
    }


def anchor_field(document: IndexDocument) -> str:
    """The texts of links to a page; one that twice as many pages use is repeated once more."""
    return "\n".join(text for text, pages in document.anchors for _ in range(pages.bit_length()))


def _spelt(text: str) -> str:
    spellings = other_spellings(text)
    return f"{space_words(text)}\n{' '.join(spellings)}" if spellings else space_words(text)


def count_words(text: str) -> int:
    """The approximate number of words of a `space_words` text, a hundred times as fast as analyzing it."""
    return (b" " + text.encode().translate(_LETTERS)).count(b" a")


def to_tantivy(
    document: IndexDocument, chunk: int, texts: Mapping[str, str], length: int
) -> tantivy.Document:
    """The document for Tantivy; `texts` are its `searchable_texts`, `length` is the number of its words."""
    result = tantivy.Document()
    for name, value in texts.items():
        result.add_text(name, value)
    for name, values in stemmed_texts(document, texts).items():
        for value in values:
            result.add_text(name, value)
    for name in document_names(document):
        result.add_text(NAMES, name)
    for name in site_names(document.host):
        result.add_text("site", name)
    result.add_text("language", document.language)
    result.add_text("chunk", str(chunk))
    result.add_text("address", document.url)
    result.add_text("copy", page_version(document.key, chunk))
    result.add_text("host", document.host)
    result.add_unsigned("domain64", document.domain64)
    result.add_unsigned("inlinks", document.inlinks)
    result.add_unsigned("depth", document.depth)
    result.add_unsigned(LENGTH, length)
    result.add_float(PRIOR, page_prior(document.body, document.inlinks, document.depth))
    if document.published is not None:
        result.add_integer("published", microseconds(document.published))
    result.add_integer("crawled", microseconds(document.crawled))
    for name, data in stored_values(document, chunk).items():
        result.add_bytes(name, data)
    return result


def stemmed_texts(document: IndexDocument, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The texts in which stems are searched, by field; `texts` are the document's `searchable_texts`."""
    stemmed = (TITLE, HEADINGS, ANCHORS, BODY)
    title, *others = (stems_of(texts[name], document.language) for name in stemmed)
    return {
        TITLE_STEMS: [title],
        STEMS: [*[title] * TITLE_TIMES, *others],
        SECTION_STEMS: [section_stems(document)],
    }


def stored_values(document: IndexDocument, chunk: int) -> dict[str, bytes]:
    """What the index stores for results and snippets, encoded and compressed."""
    stored = {name: getattr(document, name) for name in StoredFields.__struct_fields__}
    values = {
        STORED_FIELDS: _encode(StoredFields(**(stored | {"chunk": chunk}))),
        TEXT: _zstd.compress(document.body.encode()),
    }
    if document.sections:
        values[SECTIONS] = _zstd.compress(_encode(document.sections))
    return values


def section_stems(document: IndexDocument) -> str:
    """The headings of sections with gaps, so that no two of them have words close together."""
    headings = "\n".join(section_heading(section.title) for section in document.sections)
    return stems_of(_spelt(headings).replace("\n", _HEADING_GAP), document.language)


def document_names(document: IndexDocument) -> dict[str, None]:
    """The names of a page and its sections."""
    names = dict.fromkeys(page_names(document.title))
    for section in document.sections:
        names |= dict.fromkeys(section_names(section.anchor, section.title))
    return names


def field_lengths(texts: Mapping[str, str]) -> dict[str, int]:
    """The approximate number of words in each text field."""
    lengths = {name: count_words(text) for name, text in texts.items()}
    stems = TITLE_TIMES * lengths[TITLE] + lengths[HEADINGS] + lengths[ANCHORS] + lengths[BODY]
    return {**lengths, STEMS: stems, TITLE_STEMS: lengths[TITLE]}


def loaded_marker(chunk: int, lengths: Mapping[str, int]) -> tantivy.Document:
    """The document that says that a chunk is complete.

    It has filler words as in the `lengths`, those of an average document, so that it does not change the averages.
    """
    marker = tantivy.Document()
    marker.add_text("loaded", str(chunk))
    marker.add_text("chunk", str(chunk))
    for name, length in lengths.items():
        marker.add_text(name, f"{FILLER_WORD} " * length)
    marker.add_unsigned(LENGTH, lengths.get(STEMS, 0))
    return marker


def stored_fields(document: tantivy.Document) -> StoredFields:
    return decode_fields(cast("bytes", document.get_first(STORED_FIELDS)))


def stored_text(document: tantivy.Document) -> str:
    return decode_text(cast("bytes", document.get_first(TEXT)))


def stored_sections(document: tantivy.Document) -> tuple[IndexSection, ...]:
    """The sections of a document; their positions are those of `stored_text`."""
    return decode_sections(cast("bytes | None", document.get_first(SECTIONS)))


def decode_fields(data: bytes) -> StoredFields:
    return _decode(data)


def decode_text(data: bytes) -> str:
    return _zstd.decompress(data).decode()


def decode_sections(data: bytes | None) -> tuple[IndexSection, ...]:
    return _decode_sections(_zstd.decompress(data)) if data else ()
