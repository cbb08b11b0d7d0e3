"""Published numbers taken over as they are: each line whole, or not at all and with an objection.

Comes from a file of ours or of Jemison's; goes to the registry, which is locked while a batch is decided.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from usher import domain64
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.domain64 import OTHER, HostName, Parts
from usher.door import admin, hosts
from usher.door.domain64_files import PublishedLine
from usher.urls import UrlRefusal, parse

store = load_statements(__file__)
Pair = tuple[str, Hashable, Hashable]  # what kind, its number, its name


@dataclass(frozen=True, slots=True)
class ImportObjection:
    """Why a line was not taken."""

    line: PublishedLine
    reason: str


@dataclass(frozen=True, slots=True)
class PublishedHost:
    """A line that makes sense: its number taken apart and its name split, as the registry would."""

    line: PublishedLine
    parts: Parts
    name: str
    tld: str
    domain: str

    @property
    def value(self) -> int:
        return domain64.encode(self.parts)

    def pairs(self) -> Iterator[Pair]:
        """What must belong together: TLD, domain and host, each with its number."""
        code = self.parts.tld
        if self.tld:
            yield "TLD", (code, self.tld) if code == OTHER else code, self.tld
        yield "domain", (code, self.parts.domain), (code, self.domain)
        yield "host", self.value, self.name


@dataclass(slots=True)
class ImportResult:
    """What became of lines."""

    new: int = 0
    known: int = 0
    objections: list[ImportObjection] = field(default_factory=list)

    def __iadd__(self, other: "ImportResult") -> Self:
        self.new += other.new
        self.known += other.known
        self.objections += other.objections
        return self


class RegistrySnapshot:
    """What the registry has around a batch, and takes of it line after line."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Hashable], Hashable] = {}
        self._numbers: dict[tuple[str, Hashable], Hashable] = {}
        self.new: list[PublishedHost] = []

    def know(self, kind: str, number: Hashable, name: Hashable) -> None:
        self._names[kind, number] = name
        self._numbers[kind, name] = number

    def learn(self, one: PublishedHost, held: Sequence[Hashable]) -> None:
        """Remember a row of the statement `held`: who has the numbers of this line, and which its names have."""
        code, tld, *domain, value, name = held
        number_in, name_in = (None if half is None else (one.parts.tld, half) for half in domain)
        there = {"TLD": (code, tld), "domain": (number_in, name_in), "host": (value, name)}
        for kind, wanted, called in one.pairs():
            has, holder = there[kind]
            if has is not None:
                self.know(kind, has, called)
            if holder is not None:
                self.know(kind, wanted, holder)

    def objection(self, one: PublishedHost) -> str:
        """Why a line cannot be taken; empty if it can."""
        for kind, number, name in one.pairs():
            holder = self._names.get((kind, number), name)
            if holder != name:
                return f"this number of a {kind} is {number_or_name(holder)} here"
            has = self._numbers.get((kind, name), number)
            if has != number:
                return (
                    f"the {kind} {number_or_name(name)} has the number {number_or_name(has)} here"
                )
        return ""

    def take(self, one: PublishedHost) -> bool:
        """Note what of a line is new; false if all of it is known."""
        fresh = ("host", one.value) not in self._names
        if fresh:
            self.new.append(one)
            for pair in one.pairs():
                self.know(*pair)
        return fresh


def number_or_name(what: Hashable) -> str:
    match what:
        case (_, last):
            return number_or_name(last)
        case int() if what > OTHER:
            return domain64.to_hex(what) if what >= 1 << 56 else str(what)
        case _:
            return str(what)


def read_line(line: PublishedLine) -> PublishedHost | ImportObjection:
    """A line's number and name, if they can belong together at all."""
    try:
        parts = domain64.decode(domain64.from_hex(line.number))
    except ValueError as error:
        return ImportObjection(line, str(error))
    url = parse(f"https://{line.name}")
    if isinstance(url, UrlRefusal) or url.host != line.name.lower():
        return ImportObjection(line, "this is not the name of a host")
    name = domain64.split(url.host)
    if reason := contradiction(parts, name):
        return ImportObjection(line, reason)
    domain = name.under_other().domain if parts.tld == OTHER else name.domain
    return PublishedHost(line, parts, url.host, name.tld, domain)


def contradiction(parts: Parts, name: HostName) -> str:
    """Why this number cannot be that name's, whatever others have."""
    if parts.reserved or not parts.domain:
        return "a host has a domain from 1 on and a reserved byte of 0"
    if (parts.subdomain == 0) != (name.subdomain == ""):
        return "subdomain 0 is for a domain itself, and only for that"
    return "" if name.tld or parts.tld == OTHER else f"a name without a TLD is under {OTHER}"


async def import_lines(
    conn: Connection, lines: Sequence[PublishedLine], *, now: datetime
) -> ImportResult:
    """Give each name of a batch its published number; nothing of a line that somebody objects to."""
    taken, registry = ImportResult(), RegistrySnapshot()
    await hosts.lock_registry(conn)
    read = [read_line(line) for line in lines]
    sound = [one for one in read if isinstance(one, PublishedHost)]
    for one, row in zip(sound, await current_holders(conn, sound), strict=True):
        registry.learn(one, row)
    for found in read:
        if isinstance(found, ImportObjection):
            taken.objections.append(found)
        elif reason := registry.objection(found):
            taken.objections.append(ImportObjection(found.line, reason))
        elif not registry.take(found):
            taken.known += 1
    await write(conn, registry.new, now)
    taken.new = len(registry.new)
    return taken


async def current_holders(
    conn: Connection, sound: Sequence[PublishedHost]
) -> list[tuple[Hashable, ...]]:
    return await store.current_holders.tuples(
        conn,
        codes=[one.parts.tld for one in sound],
        tlds=[one.tld for one in sound],
        numbers=[one.parts.domain for one in sound],
        domains=[one.domain for one in sound],
        domain64s=[one.value for one in sound],
        names=[one.name for one in sound],
    )


async def write(conn: Connection, new: Sequence[PublishedHost], now: datetime) -> None:
    codes = {one.parts.tld: one.tld for one in new if one.parts.tld != OTHER}
    await import_tlds(conn, codes=codes)
    domains = {(one.parts.tld, one.parts.domain, one.domain): None for one in new}
    await admin.import_domains(conn, domains=list(domains))
    await admin.import_hosts(conn, numbers=[(one.value, one.name) for one in new], now=now)


async def import_tlds(conn: Connection, *, codes: Mapping[int, str]) -> int:
    return await store.import_tlds.run(conn, codes=list(codes), names=list(codes.values()))
