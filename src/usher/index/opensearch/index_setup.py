"""The two indexes of a row in a cluster: their mappings, and whether existing ones can be used.

The texts that come are already words and stems of Usher's own analyzers, separated by spaces, so that all engines
match the same words. Values for results and snippets are stored as they are, compressed. OpenSearch keeps no other copy
of a document: Usher can load every chunk again.
"""

from typing import Any, Final, NamedTuple

from usher.errors import BadInput, Conflict, NotFound, UsherError
from usher.index import fields
from usher.index.fields import INDEX_VERSION, NAMES, SECTION_STEMS, STEMS, TEXT_FIELDS, TITLE_STEMS
from usher.index.opensearch.client import OpenSearchClient
from usher.index.ranking import BM25_B, BM25_K1, MAX_HITS
from usher.telemetry import Log

log = Log("index")
MAPPING_VERSION: Final = 1  # another one if the same documents get other fields
STATE_SUFFIX: Final = "-state"
META: Final = "usher"
OPENSEARCH: Final = "opensearch"
MIN_OPENSEARCH_MAJOR: Final = 2
MIN_ELASTICSEARCH_MAJOR: Final = 8
LEGACY_BM25_MAJOR: Final = 3  # from which on "BM25" lacks the factor k1 + 1 that Tantivy has
CREATE_SECONDS: Final = 60.0
Field = dict[str, Any]  # of a mapping

# Fields of documents beside those of `fields`.
LOAD: Final = "load"  # the attempt that wrote the document
COPY: Final = "copy"  # identifies the version of a page
LOADED: Final = "loaded"  # only markers have it: the chunk is complete


class ClusterVersion(NamedTuple):
    """What a cluster says that it is."""

    distribution: str
    number: str

    @property
    def major(self) -> int:
        digits = self.number.partition(".")[0]
        return int(digits) if digits.isdecimal() else 0


class IndexShape(NamedTuple):
    """The name of a row's index, and how a new one is created."""

    name: str
    shards: int
    replicas: int

    @property
    def state_name(self) -> str:
        return self.name + STATE_SUFFIX


def read_version(client: OpenSearchClient) -> ClusterVersion:
    """The version of the cluster; UsherError if it is not supported."""
    answer = client.request("GET", "/")
    version = answer.get("version", {}) if isinstance(answer, dict) else {}
    present = ClusterVersion(str(version.get("distribution", "")), str(version.get("number", "")))
    is_opensearch = present.distribution == OPENSEARCH
    least = MIN_OPENSEARCH_MAJOR if is_opensearch else MIN_ELASTICSEARCH_MAJOR
    if present.major < least:
        hint = f"Usher needs OpenSearch {MIN_OPENSEARCH_MAJOR} or newer."
        raise UsherError(
            f"Version {present.number or '?'} of the cluster is not supported.", hint=hint
        )
    if not is_opensearch:
        log.warning("engine_not_tested", distribution=present.distribution, version=present.number)
    return present


def prepare_indexes(client: OpenSearchClient, shape: IndexShape, version: ClusterVersion) -> None:
    """Create the indexes if they are missing; Conflict if existing ones cannot be used."""
    _create(client, shape.state_name, _state_body(shape))
    meta = _read_meta(client, shape.name)
    if meta is None:
        _create(client, shape.name, index_body(shape, version))
        meta = _read_meta(client, shape.name)
    if meta == _meta():
        return
    if not meta:
        hint = "Choose another index: USHER_ENGINE_INDEX."
        raise Conflict(f"The index {shape.name} is not Usher's.", hint=hint)
    hint = (
        f"Delete the indexes {shape.name} and {shape.state_name}; the chunks are then loaded again."
    )
    raise Conflict(f"Another version of Usher made the index {shape.name}.", hint=hint)


def check_index(client: OpenSearchClient, name: str) -> None:
    """Conflict if the index was deleted or replaced meanwhile: a write would create one without our fields."""
    if _read_meta(client, name) != _meta():
        hint = "Restart the index server. It creates the index again and loads its chunks."
        raise Conflict(f"The index {name} in OpenSearch was deleted or replaced.", hint=hint)


def _create(client: OpenSearchClient, name: str, body: dict[str, Any]) -> None:
    try:
        client.request("PUT", f"/{name}", body, seconds=CREATE_SECONDS)
    except BadInput as error:
        if "already exists" not in error.message:
            raise


def _read_meta(client: OpenSearchClient, name: str) -> dict[str, Any] | None:
    """What the index says about itself; None if there is no index."""
    try:
        answer = client.request("GET", f"/{name}/_mapping")
    except NotFound:
        return None
    [index] = answer.values()
    meta = index.get("mappings", {}).get("_meta", {}).get(META, {})
    return dict(meta)


def _meta() -> dict[str, int]:
    return {"mapping": MAPPING_VERSION, "words": INDEX_VERSION}


def _state_body(shape: IndexShape) -> dict[str, Any]:
    return {
        "settings": {"number_of_shards": 1, "number_of_replicas": shape.replicas},
        "mappings": {"dynamic": False, "_meta": {META: _meta()}},
    }


def index_body(shape: IndexShape, version: ClusterVersion) -> dict[str, Any]:
    """The settings and mappings of a new index."""
    is_legacy = version.distribution == OPENSEARCH and version.major >= LEGACY_BM25_MAJOR
    similarity = {"type": "LegacyBM25" if is_legacy else "BM25", "k1": BM25_K1, "b": BM25_B}
    settings: dict[str, Any] = {
        "number_of_shards": shape.shards,
        "number_of_replicas": shape.replicas,
        "refresh_interval": "-1",  # only a commit makes documents searchable
        "similarity": {"default": similarity},
        "max_result_window": MAX_HITS,
        "max_rescore_window": MAX_HITS,
        # So that the text of removed pages can be purged at once.
        "merge.policy.expunge_deletes_allowed": 0,
        "soft_deletes.retention_lease.period": "10m",
    }
    if version.distribution == OPENSEARCH:
        settings["replication.type"] = "DOCUMENT"  # a refresh must reach the replicas too
    mappings = {
        "dynamic": "strict",
        "_source": {"enabled": False},
        "_meta": {META: _meta()},
        "properties": _properties(),
    }
    return {"settings": {"index": settings}, "mappings": mappings}


def _properties() -> dict[str, Field]:
    words: Field = {"type": "text", "analyzer": "whitespace"}
    exact: Field = {"type": "keyword", "doc_values": False}
    counted: Field = {"type": "keyword"}
    number: Field = {"type": "long"}
    value: Field = {"type": "long", "index": False}
    stored: Field = {"type": "binary", "store": True}
    properties = {name: words | {"index_options": "positions"} for name in TEXT_FIELDS}
    properties |= {name: words | {"index_options": "freqs"} for name in (STEMS, TITLE_STEMS)}
    properties[SECTION_STEMS] = words | {"norms": False}
    properties[fields.PRIOR] = {"type": "float", "index": False}
    for kind, names in (
        (exact, (NAMES, "site", COPY, LOAD)),
        (counted, ("host", "language")),
        (number, ("chunk", LOADED, "domain64", "published", "crawled")),
        (value, (fields.LENGTH, "inlinks", "depth")),
        (stored, (fields.STORED_FIELDS, fields.TEXT, fields.SECTIONS)),
    ):
        properties |= dict.fromkeys(names, kind)
    return properties
