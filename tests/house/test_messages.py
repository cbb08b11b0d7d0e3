"""Components of two versions understand each other: messages ignore unknown fields, and new fields have defaults."""

import json
import re
import runpy
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "message_fields.py"))
MESSAGES: dict[str, type] = SCRIPT["messages"]()
RECORDED: dict[str, dict[str, Any]] = json.loads(SCRIPT["FILE"].read_text("utf-8"))
# People send these in the query of a URL: a misspelt condition must not list everything.
OF_PEOPLE = {"ComponentsQuery", "EventsQuery"}
STRUCTS = sorted(name for name, message in MESSAGES.items() if issubclass(message, msgspec.Struct))
TEXTS = ("a", "a" * 64, "a" * 40, "1", "https://example.com/")
OTHER_EXAMPLES = {
    "BoolType": True,
    "NoneType": None,
    "DateTimeType": "2026-11-18T00:00:00Z",
    "DateType": "2026-11-18",
}
LATER = "field_of_a_later_version"
ADVICE = "components of the last release would fail: see docs/upgrade.md (before the first release: make messages)"


def example(type_: inspect.Type, *, full: bool) -> Any:  # noqa: ANN401, C901, PLR0911 - JSON, by its type
    """A JSON value of a type: with `full` all fields and one item in each list, else only what is needed."""
    if isinstance(type_, inspect.Metadata):
        return example(type_.type, full=full)
    if isinstance(type_, inspect.UnionType):
        return example(type_.types[0], full=full)
    if isinstance(type_, inspect.LiteralType):
        return type_.values[0]
    if isinstance(type_, inspect.StrType):
        return next(
            text
            for text in TEXTS
            if re.search(type_.pattern or "", text)
            and (type_.min_length or 0) <= len(text) <= (type_.max_length or 100)
        )
    if isinstance(type_, inspect.IntType | inspect.FloatType):
        return max(1, type_.ge or 0, type_.gt or 0)
    if isinstance(type_, inspect.ListType | inspect.VarTupleType):
        return [example(type_.item_type, full=full)] if full else []
    if isinstance(type_, inspect.TupleType):
        return [example(item, full=full) for item in type_.item_types]
    if isinstance(type_, inspect.DictType):
        return {"a": example(type_.value_type, full=full)} if full else {}
    if isinstance(type_, inspect.NamedTupleType):
        return [example(field.type, full=full) for field in type_.fields]
    if isinstance(type_, inspect.StructType):
        return {
            field.encode_name: example(field.type, full=full)
            for field in type_.fields
            if full or field.required
        }
    return OTHER_EXAMPLES[type(type_).__name__]


def with_later_fields(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with one more field in each message of it, but not in mappings, whose names are values."""
    if isinstance(value, list):
        return [with_later_fields(item) for item in value]
    if not isinstance(value, dict) or set(value) in (set(), {"a"}):
        return value
    return {**{name: with_later_fields(item) for name, item in value.items()}, LATER: [1]}


@pytest.mark.parametrize("name", sorted(set(STRUCTS) - OF_PEOPLE))
@pytest.mark.parametrize("full", [False, True])
def test_unknown_fields_are_ignored_and_absent_ones_have_defaults(name: str, *, full: bool) -> None:
    message = MESSAGES[name]
    decode: Callable[[str | bytes], object] = msgspec.json.Decoder(message).decode
    given = example(inspect.type_info(message), full=full)
    decoded = decode(json.dumps(given))
    later = json.dumps({**with_later_fields(given), LATER: 1})
    assert decode(later) == decoded
    assert decode(msgspec.json.encode(decoded)) == decoded


@pytest.mark.parametrize("name", sorted(OF_PEOPLE))
def test_people_are_told_of_a_field_that_does_not_exist(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=LATER):
        msgspec.json.decode(json.dumps({LATER: 1}), type=MESSAGES[name])


def breaks(recorded: dict[str, dict[str, Any]], present: dict[str, dict[str, Any]]) -> list[str]:
    """Which fields components of the last release would miss, or not understand."""
    problems = [
        f"{name} is new and needed"
        for name in present
        if name not in recorded and present[name]["needed"]
    ]
    for name, old in recorded.items():
        new = present.get(name)
        if old["needed"] and not (new and new["sent"]):
            problems.append(f"{name} is needed by the last release, and not always sent")
        if new and new["type"] != old["type"]:
            problems.append(f"{name} was {old['type']} and is {new['type']}")
        if new and new["needed"] and not old["sent"]:
            problems.append(f"{name} is needed, and the last release does not always send it")
    return problems


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_last_release_understands_the_present_messages(name: str) -> None:
    assert name in MESSAGES, ADVICE
    present = SCRIPT["fields"](MESSAGES[name])
    assert breaks(RECORDED[name], present) == [], ADVICE
    if not issubclass(MESSAGES[name], msgspec.Struct):
        assert list(present) == list(RECORDED[name]), f"an array has no unknown items: {ADVICE}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"later": {"needed": False, "sent": False, "type": "int"}}, None),
        ({"later": {"needed": True, "sent": True, "type": "int"}}, "later is new"),
        ({"host": None}, "host is needed by the last release"),
        ({"row": None}, None),
        ({"host": {"needed": False, "sent": False, "type": "str"}}, "host is needed by"),
        ({"host": {"needed": False, "sent": True, "type": "str"}}, None),
        ({"row": {"needed": False, "sent": False, "type": "str"}}, "row was int and is str"),
        ({"row": {"needed": True, "sent": True, "type": "int"}}, "row is needed, and"),
    ],
)
def test_changes_that_break_are_noticed(changes: dict[str, Any], problem: str | None) -> None:
    recorded = {
        "host": {"needed": True, "sent": True, "type": "str"},
        "row": {"needed": False, "sent": False, "type": "int"},
    }
    present = deepcopy(recorded) | changes
    found = breaks(recorded, {name: field for name, field in present.items() if field})
    assert ([text.startswith(problem) for text in found] == [True]) if problem else not found


def test_all_messages_are_recorded() -> None:
    """A new message is recorded with the next release; before that, no other version sends it."""
    assert len(RECORDED) > 60
    assert set(RECORDED) <= set(MESSAGES)
