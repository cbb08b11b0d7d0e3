"""The shape of the Tantivy index: its fields, how their words are cut, and a document as Tantivy takes it.

Comes from documents of an index chunk; goes to the engine's writer, and its analysers to whoever asks.
"""

import threading
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Final, cast

import msgspec
import tantivy
import zstandard
from msgspec import Struct

from usher.index.document import IndexDocument, site_names
from usher.query.results import Hit
from usher.query.tokens import space_words

TITLE: Final = "title"
HEADINGS: Final = "headings"
BODY: Final = "body"
URL: Final = "url"
TEXT_FIELDS: Final = (TITLE, HEADINGS, BODY, URL)
MAX_BYTES: Final = 128  # of one word; longer ones are not words but data

STEMMERS: Final = MappingProxyType(
    {
        "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
        "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian",
        "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
    }
)  # fmt: skip
_WITHOUT_STOP_WORDS: Final = frozenset({"ar", "el", "ro", "ta", "tr"})
_LEVEL: Final = 1  # smaller than what Tantivy's own lz4 makes of it, in the same time


class StoredFields(Struct, frozen=True, array_like=True):
    """What a hit shows, stored beside the text of the document; in the order of `Hit`."""

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

    def hit(self, score: float) -> Hit:
        return Hit(score, *msgspec.structs.astuple(self))


class _Zstd(threading.local):
    """What packs and unpacks texts: each thread has its own, for it is of use to one at a time."""

    def __init__(self) -> None:
        self.pack = zstandard.ZstdCompressor(level=_LEVEL).compress
        self.unpack = zstandard.ZstdDecompressor().decompress


_zstd: Final = _Zstd()
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredFields).decode


@cache
def schema() -> tantivy.Schema:
    """`loaded` is only in the one document per chunk that says: all of this chunk is here."""
    builder = tantivy.SchemaBuilder()
    for name in TEXT_FIELDS:
        builder.add_text_field(name, tokenizer_name="words")
    for name in ("site", "language", "chunk", "address", "copy", "loaded"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("host", tokenizer_name="raw", index_option="basic", fast=True)
    builder.add_unsigned_field("domain64", fast=True)
    builder.add_integer_field("published", fast=True)
    builder.add_integer_field("crawled", fast=True)
    builder.add_bytes_field("kept", stored=True)
    builder.add_bytes_field("text", stored=True)
    return builder.build()


@cache
def word_analyzer() -> tantivy.TextAnalyzer:
    """Cuts `spaced` text into the words of the index, without accents."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    return (
        builder.filter(tantivy.Filter.remove_long(MAX_BYTES))
        .filter(tantivy.Filter.ascii_fold())
        .build()
    )


@cache
def stem_analyzer(language: str) -> tantivy.TextAnalyzer:
    """Makes stems of words that have blanks between them, as many as there are words."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    return builder.filter(tantivy.Filter.stemmer(STEMMERS[language])).build()


@cache
def stop_word_analyzer(language: str) -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    if language in STEMMERS and language not in _WITHOUT_STOP_WORDS:
        builder = builder.filter(tantivy.Filter.stopword(STEMMERS[language]))
    return builder.build()


def page_version(key: str, chunk: int) -> str:
    """What names the version of a page that one chunk brought."""
    return f"{key}\n{chunk}"


def microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def searchable_texts(document: IndexDocument) -> dict[str, str]:
    """What can be searched for words."""
    return {
        TITLE: space_words(document.title),
        HEADINGS: space_words("\n".join(document.headings)),
        BODY: space_words(document.body),
        URL: space_words(document.url),
    }


def to_tantivy(
    document: IndexDocument, chunk: int, searched: Mapping[str, str]
) -> tantivy.Document:
    """A document as the writer takes it, with its `texts`."""
    added = tantivy.Document()
    for name, value in searched.items():
        added.add_text(name, value)
    for name in site_names(document.host):
        added.add_text("site", name)
    added.add_text("language", document.language)
    added.add_text("chunk", str(chunk))
    added.add_text("address", document.url)
    added.add_text("copy", page_version(document.key, chunk))
    added.add_text("host", document.host)
    added.add_unsigned("domain64", document.domain64)
    if document.published is not None:
        added.add_integer("published", microseconds(document.published))
    added.add_integer("crawled", microseconds(document.crawled))
    stored_fields = {name: getattr(document, name) for name in StoredFields.__struct_fields__} | {
        "chunk": chunk
    }
    added.add_bytes("kept", _encode(StoredFields(**stored_fields)))
    added.add_bytes("text", _zstd.pack(document.body.encode()))
    return added


def loaded_marker(chunk: int) -> tantivy.Document:
    """What says that all of a chunk is here."""
    added = tantivy.Document()
    added.add_text("loaded", str(chunk))
    added.add_text("chunk", str(chunk))
    return added


def stored_fields(found: tantivy.Document) -> StoredFields:
    return _decode(cast("bytes", found.get_first("kept")))


def stored_text(found: tantivy.Document) -> str:
    return _zstd.unpack(cast("bytes", found.get_first("text"))).decode()
