"""The cluster and the indexes that the settings name."""

import re
from dataclasses import dataclass, field
from typing import Final

from usher.errors import BadSetting
from usher.index.opensearch.connections import ClusterConnections
from usher.index.opensearch.index_setup import OPENSEARCH, IndexShape
from usher.settings import Settings

MAX_INDEX_CHARACTERS: Final = 100
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearchOptions:
    """How to reach a cluster, and how new indexes are created."""

    url: str
    credential: str = field(default="", repr=False)
    ca_file: str = ""
    shards: int = 3
    replicas: int = 1
    index: str = "usher"  # without the number of the row, which may change

    @property
    def shape(self) -> IndexShape:
        return IndexShape(self.index, self.shards, self.replicas)


def check_options(settings: Settings) -> None:
    """Raise BadSetting if the engine is OpenSearch and a setting of it cannot work; asks no server."""
    if settings.engine == OPENSEARCH:
        options = options_of(settings)
        ClusterConnections(options.url, credential=options.credential, ca_file=options.ca_file)


def options_of(settings: Settings) -> OpenSearchOptions:
    """The options in the settings; BadSetting if one is invalid."""
    index = settings.engine_index
    if not _INDEX.fullmatch(index) or len(index) > MAX_INDEX_CHARACTERS:
        hint = "Use lower-case letters, digits, '.', '_' and '-'; begin with a letter or digit."
        raise BadSetting(f"{index!r} cannot be the name of an index.", hint=hint)
    return OpenSearchOptions(
        url=settings.engine_url,
        credential=settings.engine_credential,
        ca_file=settings.engine_ca,
        shards=settings.engine_shards,
        replicas=settings.engine_replicas,
        index=index,
    )
