"""The references of the APIs of MGMT and of front-ends as Markdown, from their OpenAPI documents."""

import json
from collections.abc import Iterator
from typing import Any

from usher.api import openapi
from usher.api.server import OWN_ENDPOINTS
from usher.http.server.component import healthy
from usher.http.server.probes import probe_endpoints
from usher.search import openapi as front_end_openapi
from usher.search.broker import Broker
from usher.search.cluster_map import ClusterView, MapClient
from usher.search.endpoints import SearchEndpoints
from usher.search.query_reports import QueryReports

MGMT_HEADER = """# API of MGMT

Every endpoint with its messages, from the OpenAPI document that MGMT serves at `/v1/openapi.json`.
[http.md](http.md) explains errors, limits, retries and tokens; [access.md](access.md) lists which token may call what.
Endpoints marked as old keep the form of the seed documents.

"""
FRONT_END_HEADER = """# API of the front-end

Every endpoint with its messages, from the OpenAPI document that a front-end serves at `/openapi.json`.
[search.md](search.md) explains queries, partial results and the fields of the answers. No endpoint needs a token.

"""
PROBES = probe_endpoints(healthy)
SCHEMA_PREFIX = "#/components/schemas/"


def mgmt_page() -> str:
    return MGMT_HEADER + markdown(openapi.document(OWN_ENDPOINTS))


def front_end_page() -> str:
    # It connects to nothing, because no endpoint is called.
    broker = Broker(ClusterView(MapClient("http://127.0.0.1:1", token="")))
    endpoints = SearchEndpoints(broker, QueryReports()).endpoints()
    return FRONT_END_HEADER + markdown(front_end_openapi.document([*endpoints, *PROBES]))


def markdown(document: dict[str, Any]) -> str:
    lines: list[str] = []
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            lines += operation_lines(method.upper(), path, operation)
    lines.append("## Messages\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += schema_lines(name, schema)
    return "\n".join(lines)


def operation_lines(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"## `{method} {path}`\n"
    yield f"{operation['summary']}{' (old)' if operation.get('deprecated') else ''}\n"
    if scope := operation.get("x-usher-scope"):
        types = ", ".join(operation["x-usher-types"])
        yield f"Access: `{scope}`{f', components of type {types}' if types else ''}.\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | type | required | default |\n|---|---|---|---|---|"
        for item in parameters:
            yield parameter_line(item)
        yield ""
    if body := operation.get("requestBody"):
        yield f"Request: {content_text(body['content'])}\n"
    yield f"Response: {content_text(operation['responses']['200']['content'])}\n"
    for status, response in operation["responses"].items():
        if status not in {"200", "default"}:
            content = content_text(response.get("content", {}))
            text = f"{response['description']}{f': {content}' if content else ''}"
            yield f"Status {status}: {text}\n"


def parameter_line(item: dict[str, Any]) -> str:
    schema = item["schema"]
    default = json.dumps(schema["default"]) if schema.get("default") not in (None, "") else ""
    cells = [
        f"`{item['name']}`",
        item["in"],
        type_text(schema) + (f": {schema['description']}" if "description" in schema else ""),
        "yes" if item["required"] else "no",
        f"`{default}`" if default else "",
    ]
    return f"| {' | '.join(cells)} |"


def content_text(content: dict[str, Any]) -> str:
    return "; ".join(f"`{media}`: {type_text(item['schema'])}" for media, item in content.items())


def schema_lines(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if text := schema.get("description"):
        yield text.partition("\n\n")[0] + "\n"
    if "properties" not in schema:
        yield f"{type_text(schema)}\n"
        return
    yield "| field | type | required |\n|---|---|---|"
    for field, item in schema["properties"].items():
        required = "yes" if field in schema.get("required", ()) else "no"
        yield f"| `{field}` | {type_text(item)} | {required} |"
    yield ""


def type_text(schema: dict[str, Any]) -> str:
    """A type in words, with links to the messages that it contains."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMA_PREFIX)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_text(item) for item in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_text(schema['items'])}" if schema.get("items") else "list"
    text = schema.get("format") or schema.get("type", "any value")
    limits = [
        f"{name} {schema[name]}" for name in ("minimum", "maximum", "maxLength") if name in schema
    ]
    return f"{text} ({', '.join(limits)})" if limits else str(text)


if __name__ == "__main__":
    print(mgmt_page())
    print(front_end_page())
