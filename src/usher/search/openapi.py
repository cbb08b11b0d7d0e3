"""The OpenAPI 3.1 document of a front-end, from its endpoints and the types of their parameters and messages."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from usher import __version__
from usher.http.server.component import ComponentCall, ComponentEndpoint, healthy
from usher.http.server.endpoint import OPEN, Endpoint
from usher.http.server.probes import probe_endpoints
from usher.messages.server import Problem
from usher.search import atom
from usher.search.json_results import MAX_OFFSET

PATH: Final = "/openapi.json"
REF: Final = "#/components/schemas/{name}"
TEXT: Final = {"type": "string"}
HTML: Final = "text/html"
PROBLEM_MEDIA_TYPE: Final = "application/problem+json"


class PageQuery(Struct, kw_only=True):
    """The parameters of a page of results. `page` is tolerant: anything but a number is the first page."""

    q: Annotated[str, Meta(description="The query")] = ""
    page: Annotated[int, Meta(ge=1, description="Ten results each")] = 1
    verbatim: Annotated[
        Literal["0", "1"], Meta(description="1 searches for the words as they were typed")
    ] = "0"


class ExplainedQuery(PageQuery, kw_only=True):
    """The parameters of a page of results as JSON."""

    explain: Annotated[Literal["0", "1"], Meta(description="1 adds the parts of each score")] = "0"


class FeedQuery(Struct, kw_only=True):
    """The parameters of a page of results as a feed."""

    q: Annotated[str, Meta(description="The query")] = ""
    page: Annotated[int, Meta(ge=1, description="Ten results each")] = 1


class GovQuery(Struct, kw_only=True):
    """The parameters of Search.gov's results API; `affiliate` and `access_key` have no effect."""

    query: str = ""
    limit: Annotated[int, Meta(ge=1, le=50)] = 20
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0
    enable_highlighting: bool = True
    affiliate: str = ""
    access_key: str = ""


# What the handlers read from the query themselves, because pages for people accept any query.
PARAMETERS: Final[Mapping[str, type[Struct]]] = {
    "/": PageQuery,
    "/search": PageQuery,
    "/search.json": ExplainedQuery,
    "/search.atom": FeedQuery,
    "/api/search": GovQuery,
}
REQUIRED: Final = {("/api/search", "query")}
# The media type of the answer while no index server answers.
UNAVAILABLE: Final = dict.fromkeys(PARAMETERS, PROBLEM_MEDIA_TYPE) | {
    "/readyz": PROBLEM_MEDIA_TYPE,
    "/": HTML,
    "/search": HTML,
}


def with_document(endpoints: Sequence[ComponentEndpoint]) -> Sequence[ComponentEndpoint]:
    """The endpoints and one more that describes them all, including itself."""

    async def describe(_call: ComponentCall[None]) -> dict[str, Any]:
        return description

    summary = "Every endpoint of a front-end, as an OpenAPI document"
    own = Endpoint("GET", PATH, describe, None, dict[str, Any], summary, access=OPEN)
    description = document([*endpoints, own, *probe_endpoints(healthy)])
    return (*endpoints, own)


def document(endpoints: Sequence[ComponentEndpoint]) -> dict[str, Any]:
    types = [each.response for each in endpoints if each.response]
    types = list(dict.fromkeys([*types, Problem, *PARAMETERS.values()]))
    generated, components = msgspec.json.schema_components(types, ref_template=REF)
    schemas = dict(zip(types, generated, strict=True))
    paths = {each.path: {"get": operation(each, schemas, components)} for each in endpoints}
    for query in {*PARAMETERS.values()}:
        del components[query.__name__]
    described = {
        "openapi": "3.1.0",
        "info": {"title": "Usher, front-end", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
    # As JSON has it: lists instead of the tuples that are defaults of fields.
    return msgspec.json.decode(msgspec.json.encode(described), type=dict[str, Any])


def operation(
    endpoint: ComponentEndpoint, schemas: Mapping[Any, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    problem = {PROBLEM_MEDIA_TYPE: {"schema": schemas[Problem]}}
    responses: dict[str, Any] = {
        "200": {"description": "Done", "content": content(endpoint, schemas)}
    }
    if media := UNAVAILABLE.get(endpoint.path):
        page = problem if media == PROBLEM_MEDIA_TYPE else {media: {"schema": TEXT}}
        responses["503"] = {"description": "No index server answers", "content": page}
    if endpoint.path == atom.PATH:
        responses["304"] = {"description": "Unchanged"}
    described: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": "_".join(["get", *re.findall(r"\w+", endpoint.path)]),
        "responses": responses | {"default": {"description": "Could not", "content": problem}},
    }
    if endpoint.old:
        described["deprecated"] = True
    if given := parameters(endpoint.path, components):
        described["parameters"] = given
    return described


def content(endpoint: ComponentEndpoint, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    if endpoint.response is None:
        return {endpoint.media: {"schema": TEXT}}
    return {"application/json": {"schema": schemas[endpoint.response]}}


def parameters(path: str, components: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters in the path and in the query."""
    names = re.findall(r"{(\w+)}", path)
    described = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]
    query = PARAMETERS.get(path)
    if query:
        described += [
            {"name": name, "in": "query", "required": (path, name) in REQUIRED, "schema": schema}
            for name, schema in components[query.__name__]["properties"].items()
        ]
    return described
