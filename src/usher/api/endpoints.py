"""The endpoints for components, and the older names of the seed documents for the same endpoints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from usher.api import (
    builder,
    components,
    content_chunks,
    crawler,
    host_reports,
    index_server,
    query_stats,
    removals,
    tickets,
    uploads,
)
from usher.api.context import MgmtEndpoint
from usher.api.mgmt_calls import record_caller, retry_on_conflict
from usher.mgmt.component_names import ComponentType

PARTS: Final[Sequence[Sequence[MgmtEndpoint]]] = (
    components.ENDPOINTS,
    crawler.ENDPOINTS,
    content_chunks.ENDPOINTS,
    builder.ENDPOINTS,
    index_server.ENDPOINTS,
    query_stats.ENDPOINTS,
    host_reports.ENDPOINTS,
    tickets.ENDPOINTS,
    uploads.ENDPOINTS,
    removals.ENDPOINTS,
)
# Handlers that do not identify the caller; the call is still a sign of life of a component in this role.
SIGN_OF_LIFE_ROLES: Final[Mapping[str, Sequence[ComponentType]]] = {
    "/add_links": ("crawler",),
    "/get_servers_map": ("front-end",),
    "/get_map": ("front-end",),
    "/v1/map": ("front-end",),
}


def with_retries(endpoint: MgmtEndpoint) -> MgmtEndpoint:
    handler = endpoint.handler
    if roles := SIGN_OF_LIFE_ROLES.get(endpoint.path):
        handler = record_caller(handler, roles)
    return replace(endpoint, handler=retry_on_conflict(handler))


CURRENT_ENDPOINTS: Final[Sequence[MgmtEndpoint]] = tuple(
    with_retries(endpoint) for part in PARTS for endpoint in part
)
MORE_LINKS_PATH: Final = "/get_links/{number}"
# The names in the seed's API document, its code and its older drafts.
SEED_ALIASES: Final[Mapping[str, Sequence[str]]] = {
    "/set_component_state": ("/set_state/component", "/set_state/comp/", "/send_machine_status"),
    "/get_links": ("/get_seeds",),
    MORE_LINKS_PATH: ("/get_link", "/get_seed"),
    "/set_link_state": (
        "/set_state/link",
        "/set_state/seed",
        "/update_seed_stats",
        "/add_crawled_link",
    ),
    "/add_links": ("/add_link",),
    "/set_content_chunk_metadata": (
        "/set_state/content_chunk",
        "/set_state/cc/",
        "/add_chunk_metadata",
        "/send_chunk_metadata",
        "/send_chunk_status",
    ),
    "/get_chunks/unpropagated": ("/get_unreplicated_chunks",),
    "/get_content_chunk_metadata": (
        "/get_metadata/content_chunk",
        "/get_content_chunk",
        "/get_chunk_metadata",
    ),
    "/set_index_chunk_metadata": (
        "/set_state/index_chunk",
        "/set_state/ic/",
        "/add_index_chunk",
        "/send_index_metadata",
    ),
    "/get_chunks": ("/get_chunks_metadata",),
    "/set_chunk_loaded": ("/set_replicated_chunk", "/set_chunk/propagated"),
    "/send_query_stats": ("/send_stats/query", "/add_query_stats"),
    "/get_servers_map": ("/get_server_map",),
    "/get_map": ("/get_map/index_server", "/get_map/index_servers"),
}


def seed_aliases() -> Iterator[MgmtEndpoint]:
    for endpoint in CURRENT_ENDPOINTS:
        if not endpoint.old:
            for name in SEED_ALIASES.get(endpoint.path, ()):
                summary = f"{endpoint.method} {endpoint.path} under an old name"
                yield replace(endpoint, path=name, summary=summary, old=True)


ENDPOINTS: Final[Sequence[MgmtEndpoint]] = (*CURRENT_ENDPOINTS, *seed_aliases())
