"""The documents that OpenSearch gets: words and stems of Usher's own analyzers, and the stored values."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from usher.index import fields
from usher.index.analyzers import english_stem_analyzer, word_analyzer
from usher.index.document import IndexDocument, site_names
from usher.index.fields import NAMES, STEMS
from usher.index.opensearch.index_setup import COPY, LOAD, LOADED
from usher.index.page_prior import page_prior

ID_BYTES: Final = 16
_encode: Final = msgspec.json.Encoder().encode


def document_id(url: str, chunk: int) -> str:
    """The id of a document: the same whenever the chunk is loaded, so that loading it again replaces it."""
    return f"{chunk}-{blake2b(url.encode(), digest_size=ID_BYTES).hexdigest()}"


def marker_id(chunk: int) -> str:
    return f"chunk-{chunk}"


def encode_marker(chunk: int) -> bytes:
    """The document that says that a chunk is complete."""
    return _encode({LOADED: chunk})


def copy_name(key: str, chunk: int) -> str:
    """Identifies the version of a page that came with a chunk, in few characters."""
    version = fields.page_version(key, chunk)
    return blake2b(version.encode(), digest_size=ID_BYTES).hexdigest()


def encode_document(document: IndexDocument, chunk: int, load: str) -> bytes:
    """The JSON of a document; `load` names the attempt to load its chunk."""
    texts = fields.searchable_texts(document)
    values: dict[str, Any] = {name: " ".join(_words(text)) for name, text in texts.items()}
    for name, parts in fields.stemmed_texts(document, texts).items():
        stems = {part: " ".join(_stems(part)) for part in dict.fromkeys(parts)}
        values[name] = " ".join(stems[part] for part in parts)
    values |= fields.stored_values(document, chunk)
    values |= {
        NAMES: list(fields.document_names(document)),
        "site": site_names(document.host),
        "host": document.host,
        "language": document.language,
        "chunk": chunk,
        LOAD: load,
        COPY: copy_name(document.key, chunk),
        "domain64": document.domain64,
        "inlinks": document.inlinks,
        "depth": document.depth,
        fields.LENGTH: fields.field_lengths(texts)[STEMS],
        fields.PRIOR: page_prior(document.body, document.inlinks, document.depth),
        "crawled": fields.microseconds(document.crawled),
    }
    if document.published is not None:
        values["published"] = fields.microseconds(document.published)
    return _encode(values)


def _words(text: str) -> Iterable[str]:
    return word_analyzer().analyze(text)


def _stems(text: str) -> Iterable[str]:
    return english_stem_analyzer().analyze(text)
