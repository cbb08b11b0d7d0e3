"""The OpenAPI 3.1 document, drawn from the table of endpoints and the message types they name."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from usher import __version__
from usher.api.access import READ
from usher.api.context import MgmtCall, MgmtEndpoint
from usher.http.server.endpoint import Endpoint
from usher.messages.server import Problem

Endpoints = Sequence[MgmtEndpoint]
REF = "#/components/schemas/{name}"
TEXT = {"type": "string"}
PAGE = "text/html"


def with_document(endpoints: Endpoints) -> Endpoints:
    """The endpoints and one more that lists them all, itself too."""

    async def describe(_call: MgmtCall[None]) -> dict[str, Any]:
        return drawn

    summary = "Every endpoint, as an OpenAPI document"
    path = "/v1/openapi.json"
    own = Endpoint("GET", path, describe, None, dict[str, Any], summary, access=READ)
    drawn = document([*endpoints, own])
    return (*endpoints, own)


def document(endpoints: Endpoints) -> dict[str, Any]:
    types = message_types(endpoints)
    drawn, components = msgspec.json.schema_components(types, ref_template=REF)
    schemas = dict(zip(map(str, types), drawn, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        drawn_one = operation(endpoint, schemas)
        drawn_one |= parameters(endpoint, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = drawn_one
    return {
        "openapi": "3.1.0",
        "info": {"title": "Usher", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def message_types(endpoints: Endpoints) -> list[Any]:
    """Every type that is asked for or answered, once."""
    found = [kind for one in endpoints for kind in (one.request, one.response) if kind is not None]
    return list(dict.fromkeys([*found, Problem]))


def operation(endpoint: MgmtEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": operation_id(endpoint),
        "responses": {
            "200": {"description": "Done", "content": answer(endpoint, schemas)},
            "default": {"description": "Could not", "content": trouble(endpoint, schemas)},
        },
        "x-usher-scope": endpoint.access.scope,
        "x-usher-types": sorted(endpoint.access.types),
    }
    if endpoint.old:
        drawn["deprecated"] = True
    if endpoint.request is not None and endpoint.method != "GET":
        body = asked(endpoint.request, schemas)
        drawn["requestBody"] = {"required": True, "content": body}
    return drawn


def operation_id(endpoint: MgmtEndpoint) -> str:
    words = re.findall(r"\w+", endpoint.path)
    return "_".join([endpoint.method.lower(), *words])


def asked(shape: type, schemas: dict[str, Any]) -> dict[str, Any]:
    if shape is bytes:
        return {"*/*": {"schema": TEXT}}
    return {"application/json": {"schema": schemas[str(shape)]}}


def answer(endpoint: MgmtEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    if endpoint.response is None:
        return {endpoint.media: {"schema": TEXT}}
    page = {PAGE: {"schema": TEXT}} if endpoint.media == PAGE else {}
    return {"application/json": {"schema": schemas[str(endpoint.response)]}, **page}


def trouble(endpoint: MgmtEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    """What went wrong is a page where a page was wanted."""
    page = {PAGE: {"schema": TEXT}} if endpoint.media == PAGE else {}
    return {"application/problem+json": {"schema": schemas[str(Problem)]}, **page}


def parameters(endpoint: MgmtEndpoint, components: dict[str, Any]) -> dict[str, Any]:
    """The words of the path and, of a GET, the names of its query."""
    words = re.findall(r"{(\w+)}", endpoint.path)
    found = [{"name": word, "in": "path", "required": True, "schema": TEXT} for word in words]
    if endpoint.request is not None and endpoint.method == "GET":
        query = components[endpoint.request.__name__]
        found += [
            {"name": name, "in": "query", "required": name in query["required"], "schema": schema}
            for name, schema in query["properties"].items()
        ]
    return {"parameters": found} if found else {}
