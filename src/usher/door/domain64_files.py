"""Files of published numbers: our export as text or JSON, and Jemison's generated domain64.json."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from usher.domain64 import HostName, join, split
from usher.errors import BadInput

FORMATS = "A line is a number in hex, a tab and a name; JSON is our export's or Jemison's."


@dataclass(frozen=True, slots=True)
class PublishedLine:
    """A published number in hex and its host name; `place` is its place in the file."""

    place: str
    number: str
    name: str


def read(path: Path) -> Iterator[PublishedLine]:
    with path.open("rb") as file:
        start = file.read(1)
    return from_json(path) if start in (b"{", b"[") else from_text(path)


def from_text(path: Path) -> Iterator[PublishedLine]:
    with path.open(encoding="utf-8", errors="backslashreplace") as file:
        for place, text in enumerate(file, 1):
            number, _, name = text.strip().partition("\t")
            if number and not number.startswith("#"):
                yield PublishedLine(f"line {place}", number, name)


def from_json(path: Path) -> Iterator[PublishedLine]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON: {error}.", hint=FORMATS) from error
    if isinstance(content, list):
        return usher_lines(content, path)
    return jemison_lines(content, path)


def usher_lines(items: list[object], path: Path) -> Iterator[PublishedLine]:
    """Read our export: a list of objects."""
    for place, item in enumerate(items, 1):
        if not isinstance(item, dict) or not {"hex", "name"} <= item.keys():
            raise BadInput(f"{path}: item {place} has no hex and name.", hint=FORMATS)
        yield PublishedLine(f"item {place}", str(item["hex"]), str(item["name"]))


def jemison_lines(content: Mapping[str, object], path: Path) -> Iterator[PublishedLine]:
    """Read Jemison's file: for each TLD two tables, from number to name and back; one of them is enough."""
    parts = [(tld, part) for tld, part in content.items() if isinstance(part, dict)]
    pairs = [(tld, pair) for tld, part in parts for pair in pairs_of(part)]
    if not pairs:
        raise BadInput(f"{path} holds no numbers.", hint=FORMATS)
    return (PublishedLine(tld, number, name) for tld, (number, name) in pairs)


def pairs_of(part: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    there, back = part.get("Domain64ToFQDN"), part.get("FQDNToDomain64")
    pairs = dict[tuple[str, str], None]()
    if isinstance(there, dict):
        pairs |= {(str(number), str(name)): None for number, name in there.items()}
    if isinstance(back, dict):
        pairs |= {(str(number), str(name)): None for name, number in back.items()}
    return pairs


def reversed_labels(name: str) -> str:
    """Reverse the labels before the domain, as Jemison wrote them: `amarillo.www.va.gov` is `www.amarillo.va.gov`."""
    parts = split(name)
    labels = ".".join(reversed(parts.subdomain.split(".")))
    return join(HostName(parts.tld, parts.domain, labels))


def may_have_reversed_labels(path: Path) -> bool:
    """Whether the file is Jemison's and contains names with several labels before the domain."""
    with path.open("rb") as file:
        theirs = file.read(1) == b"{"
    return theirs and any("." in split(line.name).subdomain for line in read(path))
