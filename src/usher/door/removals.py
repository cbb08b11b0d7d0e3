"""Removals: pages that the operator removed. The door refuses them, front-ends hide them, the watchdog purges them.

`mgmt/removal_sweep.py` purges; `removal_rules.py` has the rule which pages a removal covers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import structs
from psycopg.types.json import Jsonb

from usher import domain64
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import admin, filters, hosts
from usher.errors import BadInput
from usher.removal_rules import RemovalRule, RemovalTarget

store = load_statements(__file__)
MAX_PAGES_COUNTED: Final = 1_000_000
MAX_PAGES_COMPARED: Final = 1_000  # with other pages that have the same text
MAX_EXAMPLES: Final = 5
MAX_REASON_BYTES: Final = 4_000


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal as recorded; `pages` have been swept when `swept_at` is set."""

    id: int
    target: str
    reason: str
    removed_by: str
    removed_at: datetime
    undone_by: str | None
    undone_at: datetime | None
    swept_at: datetime | None
    pages: int

    @property
    def words(self) -> str:
        """For people: when, by whom and why."""
        return (
            f"removed on {self.removed_at:%Y-%m-%d %H:%M} UTC by {self.removed_by}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class RemovalPreview:
    """What a removal covers now, and what it does not although it may belong to it."""

    pages: int
    searchable: int
    examples: Sequence[str]
    same_texts: Sequence[
        str
    ]  # pages that the removal does not cover, with the text of one that it covers
    other_hosts: Sequence[str]  # of the same domain


async def resolve(conn: Connection, target: RemovalTarget) -> RemovalTarget:
    """The target with the path that the filters of its host make of it, because pages are stored by that path."""
    if target.kind != "page":
        return target
    settings, host = (
        await hosts.door_settings(conn),
        await admin.show_host(conn, name=target.rule.host),
    )
    rules = filters.compile(filters.combine(settings.filters, host.filters if host else []))
    stored = [rules.apply(path) for path in target.rule.paths]
    paths = dict.fromkeys((*target.rule.paths, *(path for path in stored if isinstance(path, str))))
    return structs.replace(target, rule=structs.replace(target.rule, paths=tuple(paths)))


async def domain_range(conn: Connection, rule: RemovalRule) -> tuple[int, int]:
    """The numbers of the hosts that may be in the domain of a rule; none if no host of the domain is registered."""
    (within,) = await hosts.known_ranges(conn, names=[rule.host])
    if within is None or not domain64.decode(within.start).domain:
        return 0, 0
    return within.start, within.end


async def preview(conn: Connection, target: RemovalTarget) -> RemovalPreview:
    """Count the pages that a removal covers; changes nothing."""
    rule, (low, high) = target.rule, await domain_range(conn, target.rule)
    [(pages, searchable, examples, ids)] = await store.matching_pages.tuples(
        conn,
        host=rule.host,
        subdomains=rule.subdomains,
        paths=list(rule.paths),
        prefix=rule.prefix,
        low=low,
        high=high,
        most=MAX_PAGES_COUNTED,
        examples=MAX_EXAMPLES,
        most_copied=MAX_PAGES_COMPARED,
    )
    same = await store.same_texts.column(conn, ids=ids, n=MAX_EXAMPLES) if ids else []
    others = []
    if target.kind == "host":
        others = await store.other_hosts.column(
            conn, low=low, high=high, host=rule.host, n=MAX_EXAMPLES
        )
    return RemovalPreview(pages, searchable, examples, same, others)


async def add_removal(
    conn: Connection, target: RemovalTarget, *, reason: str, author: str, now: datetime
) -> int | None:
    """Record a removal; its number, or None if the same target is removed already."""
    reason = checked_reason(reason)
    await hosts.lock_registry(conn)  # a host that is registered meanwhile would not be told
    rule, (low, high) = target.rule, await domain_range(conn, target.rule)
    number: int | None = await store.add_removal.value(
        conn,
        target=target.text,
        host=rule.host,
        subdomains=rule.subdomains,
        paths=list(rule.paths),
        prefix=rule.prefix,
        reason=reason,
        author=author,
        low=low,
        high=high,
        now=now,
    )
    return number


async def add_page_removals(
    conn: Connection, targets: Sequence[RemovalTarget], *, reason: str, author: str, now: datetime
) -> int:
    """Record a removal of each of these pages; how many were not removed already."""
    await hosts.lock_registry(conn)
    pages = [
        {"target": target.text, "host": target.rule.host, "paths": target.rule.paths}
        for target in targets
    ]
    number: int = await store.add_page_removals.value(
        conn, pages=Jsonb(pages), reason=checked_reason(reason), author=author, now=now
    )
    return number


def checked_reason(reason: str) -> str:
    """The reason without spaces around it; BadInput if it is empty or too long."""
    if not reason.strip() or len(reason.encode()) > MAX_REASON_BYTES:
        raise BadInput(
            f"A removal needs a reason of at most {MAX_REASON_BYTES:,} bytes.", hint="--reason TEXT"
        )
    return reason.strip()


async def undo_removal(
    conn: Connection, target: RemovalTarget, *, author: str, now: datetime
) -> int | None:
    """End a removal; its number, or None if exactly this target is not removed."""
    await hosts.lock_registry(conn)
    low, high = await domain_range(conn, target.rule)
    number: int | None = await store.undo_removal.value(
        conn, target=target.text, author=author, low=low, high=high, now=now
    )
    return number


async def list_removals(
    conn: Connection,
    *,
    before: int | None = None,
    undone: bool = False,
    contains: str | None = None,
    n: int = 100,
) -> list[Removal]:
    """Removals, the latest first, from before this number; with `undone` also those that were undone.

    `contains` is a part of the target, the author or the reason.
    """
    return await store.list_removals.rows(
        conn, Removal, before=before, undone=undone, contains=contains, n=n
    )


async def removals_of_page(conn: Connection, *, host: str, path: str) -> list[Removal]:
    """The removals in force that cover a page."""
    return await store.removals_of_page.rows(conn, Removal, host=host, path=path)


async def rules_version(conn: Connection) -> str:
    """A text that changes whenever the rules do."""
    [(incarnation, total, active)] = await store.rules_version.tuples(conn)
    return f"{incarnation}-{total}-{active}"


async def rules(conn: Connection) -> list[RemovalRule]:
    """The rules of all removals in force."""
    return [
        RemovalRule(host, subdomains, tuple(paths), prefix)
        for host, subdomains, paths, prefix in await store.rules.tuples(conn)
    ]
