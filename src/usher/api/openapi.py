"""The OpenAPI 3.1 document, generated from the endpoints and their message types."""

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
HTML_MEDIA_TYPE = "text/html"


def with_document(endpoints: Endpoints) -> Endpoints:
    """The endpoints and one more that describes them all, including itself."""

    async def describe(_call: MgmtCall[None]) -> dict[str, Any]:
        return description

    summary = "Every endpoint, as an OpenAPI document"
    path = "/v1/openapi.json"
    own = Endpoint("GET", path, describe, None, dict[str, Any], summary, access=READ)
    description = document([*endpoints, own])
    return (*endpoints, own)


def document(endpoints: Endpoints) -> dict[str, Any]:
    types = message_types(endpoints)
    generated, components = msgspec.json.schema_components(types, ref_template=REF)
    schemas = dict(zip(map(str, types), generated, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        described = operation(endpoint, schemas) | parameters(endpoint, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Usher", "version": __version__},
        "paths": paths,
        "components": {"schemas": json_values(components)},
    }


def json_values(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas as JSON has them: lists instead of the tuples that are defaults of fields."""
    return msgspec.json.decode(msgspec.json.encode(schemas), type=dict[str, Any])


def message_types(endpoints: Endpoints) -> list[Any]:
    """The types of all requests and responses, each once."""
    types = [type_ for each in endpoints for type_ in (each.request, each.response) if type_]
    return list(dict.fromkeys([*types, Problem]))


def operation(endpoint: MgmtEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    page = {HTML_MEDIA_TYPE: {"schema": TEXT}} if endpoint.media == HTML_MEDIA_TYPE else {}
    content = {endpoint.media: {"schema": TEXT}}
    if endpoint.response is not None:
        content = {"application/json": {"schema": schemas[str(endpoint.response)]}, **page}
    problem = {"application/problem+json": {"schema": schemas[str(Problem)]}, **page}
    described: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": "_".join([endpoint.method.lower(), *re.findall(r"\w+", endpoint.path)]),
        "responses": {
            "200": {"description": "Done", "content": content},
            "default": {"description": "Could not", "content": problem},
        },
        "x-usher-scope": endpoint.access.scope,
        "x-usher-types": sorted(endpoint.access.types),
    }
    if endpoint.old:
        described["deprecated"] = True
    if endpoint.request is not None and endpoint.method != "GET":
        body = request_content(endpoint.request, schemas)
        described["requestBody"] = {"required": True, "content": body}
    return described


def request_content(request: type, schemas: dict[str, Any]) -> dict[str, Any]:
    if request is bytes:
        return {"*/*": {"schema": TEXT}}
    return {"application/json": {"schema": schemas[str(request)]}}


def parameters(endpoint: MgmtEndpoint, components: dict[str, Any]) -> dict[str, Any]:
    """The parameters in the path and, of a GET, in the query."""
    names = re.findall(r"{(\w+)}", endpoint.path)
    described = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]
    if endpoint.request is not None and endpoint.method == "GET":
        query = components[endpoint.request.__name__]
        described += [
            {"name": name, "in": "query", "required": name in query["required"], "schema": schema}
            for name, schema in query["properties"].items()
        ]
    return {"parameters": described} if described else {}
