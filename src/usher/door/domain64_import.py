"""The import of published numbers: each line completely, or not at all and with an objection."""

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
Pair = tuple[str, Hashable, Hashable]  # kind, number, name


@dataclass(frozen=True, slots=True)
class ImportObjection:
    """Why a line was not imported."""

    line: PublishedLine
    reason: str


@dataclass(frozen=True, slots=True)
class PublishedHost:
    """A valid line, with the parts of its number and of its name."""

    line: PublishedLine
    parts: Parts
    name: str
    tld: str
    domain: str

    @property
    def value(self) -> int:
        return domain64.encode(self.parts)

    def pairs(self) -> Iterator[Pair]:
        """TLD, domain and host, each with its number."""
        code = self.parts.tld
        if self.tld:
            yield "TLD", (code, self.tld) if code == OTHER else code, self.tld
        yield "domain", (code, self.parts.domain), (code, self.domain)
        yield "host", self.value, self.name


@dataclass(slots=True)
class ImportResult:
    """How many lines were new or known, and the objections to the others."""

    new: int = 0
    known: int = 0
    objections: list[ImportObjection] = field(default_factory=list)

    def __iadd__(self, other: "ImportResult") -> Self:
        self.new += other.new
        self.known += other.known
        self.objections += other.objections
        return self


class RegistrySnapshot:
    """The part of the registry that concerns a batch, with the lines that were accepted so far."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Hashable], Hashable] = {}
        self._numbers: dict[tuple[str, Hashable], Hashable] = {}
        self.new: list[PublishedHost] = []

    def know(self, kind: str, number: Hashable, name: Hashable) -> None:
        self._names[kind, number] = name
        self._numbers[kind, name] = number

    def learn(self, host: PublishedHost, held: Sequence[Hashable]) -> None:
        """Read a row of `current_holders`: the names that have its numbers, and the numbers of its names."""
        code, tld, *domain, value, name = held
        number_in, name_in = (None if half is None else (host.parts.tld, half) for half in domain)
        there = {"TLD": (code, tld), "domain": (number_in, name_in), "host": (value, name)}
        for kind, wanted, called in host.pairs():
            has, holder = there[kind]
            if has is not None:
                self.know(kind, has, called)
            if holder is not None:
                self.know(kind, wanted, holder)

    def objection(self, host: PublishedHost) -> str:
        """Why a line cannot be imported; empty if it can."""
        for kind, number, name in host.pairs():
            holder = self._names.get((kind, number), name)
            if holder != name:
                return f"this number of a {kind} is {number_or_name(holder)} here"
            has = self._numbers.get((kind, name), number)
            if has != number:
                return (
                    f"the {kind} {number_or_name(name)} has the number {number_or_name(has)} here"
                )
        return ""

    def take(self, host: PublishedHost) -> bool:
        """Accept a line; returns False if its host is known already."""
        fresh = ("host", host.value) not in self._names
        if fresh:
            self.new.append(host)
            for pair in host.pairs():
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
    """Parse a line; returns an objection if its number and name cannot belong together."""
    try:
        parts = domain64.decode(domain64.from_hex(line.number))
    except ValueError as error:
        return ImportObjection(line, str(error))
    url = parse(f"https://{line.name}")
    if isinstance(url, UrlRefusal) or url.host != line.name.lower():
        return ImportObjection(line, "this is not a host name")
    name = domain64.split(url.host)
    if reason := contradiction(parts, name):
        return ImportObjection(line, reason)
    domain = name.under_other().domain if parts.tld == OTHER else name.domain
    return PublishedHost(line, parts, url.host, name.tld, domain)


def contradiction(parts: Parts, name: HostName) -> str:
    """Why this number cannot belong to this name; empty if it can."""
    if parts.reserved or not parts.domain:
        return "a host has a domain from 1 on and a reserved byte of 0"
    if (parts.subdomain == 0) != (name.subdomain == ""):
        return "subdomain 0 is for a domain itself, and only for that"
    return "" if name.tld or parts.tld == OTHER else f"a name without a TLD is under {OTHER}"


async def import_lines(
    conn: Connection, lines: Sequence[PublishedLine], *, now: datetime
) -> ImportResult:
    """Register the names of a batch with their published numbers; skips lines that contradict the registry."""
    taken, registry = ImportResult(), RegistrySnapshot()
    await hosts.lock_registry(conn)
    read = [read_line(line) for line in lines]
    sound = [host for host in read if isinstance(host, PublishedHost)]
    for host, row in zip(sound, await current_holders(conn, sound), strict=True):
        registry.learn(host, row)
    for line in read:
        if isinstance(line, ImportObjection):
            taken.objections.append(line)
        elif reason := registry.objection(line):
            taken.objections.append(ImportObjection(line.line, reason))
        elif not registry.take(line):
            taken.known += 1
    await write(conn, registry.new, now)
    taken.new = len(registry.new)
    return taken


async def current_holders(
    conn: Connection, sound: Sequence[PublishedHost]
) -> list[tuple[Hashable, ...]]:
    return await store.current_holders.tuples(
        conn,
        codes=[host.parts.tld for host in sound],
        tlds=[host.tld for host in sound],
        numbers=[host.parts.domain for host in sound],
        domains=[host.domain for host in sound],
        domain64s=[host.value for host in sound],
        names=[host.name for host in sound],
    )


async def write(conn: Connection, new: Sequence[PublishedHost], now: datetime) -> None:
    codes = {host.parts.tld: host.tld for host in new if host.parts.tld != OTHER}
    await import_tlds(conn, codes=codes)
    domains = {(host.parts.tld, host.parts.domain, host.domain): None for host in new}
    await admin.import_domains(conn, domains=list(domains))
    await admin.import_hosts(conn, numbers=[(host.value, host.name) for host in new], now=now)


async def import_tlds(conn: Connection, *, codes: Mapping[int, str]) -> int:
    return await store.import_tlds.run(conn, codes=list(codes), names=list(codes.values()))
