"""The reference of MGMT's API as Markdown, from its OpenAPI document."""

import json
from collections.abc import Iterator
from typing import Any

from usher.api import openapi
from usher.api.server import OWN_ENDPOINTS

HEADER = """# API of MGMT

Every endpoint with its messages, from the OpenAPI document that MGMT serves at `/v1/openapi.json`.
[http.md](http.md) explains errors, limits, retries and tokens; [access.md](access.md) lists which token may call what.
Endpoints marked as old keep the form of the seed documents.

"""
SCHEMA_PREFIX = "#/components/schemas/"


def markdown() -> str:
    document = openapi.document(OWN_ENDPOINTS)
    lines = [HEADER]
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
    scope, types = operation["x-usher-scope"], ", ".join(operation["x-usher-types"])
    yield f"Access: `{scope}`{f', components of type {types}' if types else ''}.\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | type | required |\n|---|---|---|---|"
        for item in parameters:
            required = "yes" if item["required"] else "no"
            yield f"| `{item['name']}` | {item['in']} | {type_text(item['schema'])} | {required} |"
        yield ""
    if body := operation.get("requestBody"):
        yield f"Request: {content_text(body['content'])}\n"
    yield f"Response: {content_text(operation['responses']['200']['content'])}\n"


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
    print(markdown())
