"""Writes the fields of the messages between components, as the last release has them; `make messages` runs it.

`tests/house/test_messages.py` compares the present messages with them, because components of two versions run together.
`scripts/release --commit` writes them again.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

FILE = Path(__file__).resolve().parent.parent / "tests" / "house" / "message_fields.json"
MODULES = (
    "usher.messages.builder",
    "usher.messages.components",
    "usher.messages.crawler",
    "usher.messages.front_end",
    "usher.messages.index_server",
    "usher.messages.server",
    "usher.query.language",
    "usher.query.results",
    "usher.query.rpc_messages",
)


def messages() -> dict[str, type]:
    """The messages by name: structs, and named tuples, which are arrays in JSON."""
    found: dict[str, type] = {}
    for module in MODULES:
        for name, value in vars(import_module(module)).items():
            is_message = isinstance(value, type) and (
                issubclass(value, msgspec.Struct) or hasattr(value, "_fields")
            )
            if is_message and value.__module__ == module:
                found[name] = value
    return found


def fields(message: type) -> dict[str, dict[str, Any]]:
    """The fields of a message by their names in JSON: whether each is always sent, is needed, and its type."""
    info = inspect.type_info(message)
    if isinstance(info, inspect.NamedTupleType):
        return {
            field.name: {"needed": True, "sent": True, "type": type_name(field.type)}
            for field in info.fields
        }
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{message} is no message")
    return {
        field.encode_name: {
            "needed": field.required,
            "sent": field.required or not info.cls.__struct_config__.omit_defaults,
            "type": type_name(field.type),
        }
        for field in info.fields
    }


def type_name(type_: inspect.Type) -> str:  # noqa: PLR0911 - one for each kind of type
    """A type without its bounds: `list of str`, `int or null`, `"a" or "b"`."""
    if isinstance(type_, inspect.Metadata):
        return type_name(type_.type)
    if isinstance(type_, inspect.UnionType):
        return " or ".join(sorted(map(type_name, type_.types)))
    if isinstance(type_, inspect.LiteralType):
        return " or ".join(sorted(json.dumps(value) for value in type_.values))
    if isinstance(type_, inspect.ListType | inspect.VarTupleType):
        return f"list of {type_name(type_.item_type)}"
    if isinstance(type_, inspect.TupleType):
        return f"array of {', '.join(map(type_name, type_.item_types))}"
    if isinstance(type_, inspect.DictType):
        return f"object of {type_name(type_.value_type)}"
    if isinstance(type_, inspect.StructType | inspect.NamedTupleType):
        return type_.cls.__name__
    return type(type_).__name__.removesuffix("Type").lower().replace("none", "null")


def main() -> None:
    lines = [
        f"{json.dumps(name)}: {json.dumps(fields(message))}"
        for name, message in sorted(messages().items())
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
