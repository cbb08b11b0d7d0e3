"""The rules of hosts that a doorkeeper caches: policy, filters, scope, limits and removals, each with its revision.

Every batch works on a part of its own, so that other batches cannot change it meanwhile. The doorkeeper merges the part
into its cache after the commit. The knock statements find out whether a revision is out of date.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from usher import domain64
from usher.db.pool import Connection
from usher.door import filters, hosts, scope
from usher.door.hosts import DoorHost, HostRemoval
from usher.door.rules import HOST_SET_BACK, Reason
from usher.removal_rules import RemovalRule, host_and_parents

SMALL_HOST_PAGES = 10_000  # hosts with at most this limit are counted at their first knock
MAX_CACHED_HOSTS = 300_000  # then the doorkeeper starts an empty cache
OWN_ADDRESS_DETAIL = "a component of Usher listens there"
Removals = tuple[tuple[RemovalRule, str], ...]  # each with the text for a refusal
REFUSALS = {"blocked": Reason.HOST_BLOCKED, "paused": Reason.HOST_PAUSED}


@dataclass(frozen=True, slots=True)
class CachedHost:
    """The rules of a host; with a `refusal` if its policy admits nothing."""

    domain64: int
    revision: int
    refusal: Reason | None
    detail: str
    rules: filters.CompiledFilters
    scope: scope.LinkScope
    max_pages: int
    max_depth: int
    pages: int  # a lower bound, counted when the host was full; else 0
    strict: bool  # every batch must check the limit of pages
    permitted: bool = False  # the operator allowed this private host
    removals: Removals = ()

    def removal(self, path: str) -> str | None:
        """Why the operator removed this page; None if it is not removed."""
        return next((why for rule, why in self.removals if rule.covers_path(path)), None)


@dataclass(slots=True)
class HostCache:
    """Hosts by name, and the general settings; at revision 0 nothing has been read yet."""

    hosts: dict[str, CachedHost] = field(default_factory=dict)
    settings_revision: int = 0
    general_filters: list[dict[str, object]] = field(default_factory=list)
    general_rules: filters.CompiledFilters = field(default_factory=lambda: filters.compile([]))

    def part(self, names: Iterable[str]) -> "HostCache":
        """A copy with only these hosts."""
        cached = {name: self.hosts[name] for name in names if name in self.hosts}
        return HostCache(cached, self.settings_revision, self.general_filters, self.general_rules)

    def merged(self, other: "HostCache") -> "HostCache":
        """Add the hosts of the other; returns only the other if the general settings changed or this is full."""
        if self.settings_revision != other.settings_revision or len(self.hosts) > MAX_CACHED_HOSTS:
            return other
        self.hosts.update(other.hosts)
        return self

    def lacks(self, names: Collection[str]) -> bool:
        return not self.settings_revision or any(name not in self.hosts for name in names)

    async def read(
        self,
        conn: Connection,
        schemes: Mapping[str, int],
        *,
        found_on: str,
        register: bool,
        now: datetime,
        forbidden: Collection[str] = (),
    ) -> None:
        """Read the hosts that are not cached, and register new ones as far as the scope of `found_on` allows.

        `forbidden` hosts are never registered.
        """
        if not self.settings_revision:
            settings = await hosts.door_settings(conn)
            self.settings_revision, self.general_filters = settings.revision, settings.filters
            self.general_rules = filters.compile(settings.filters)
        await self._read_rules(conn, [*schemes, *([found_on] if found_on else [])])
        unknown = [name for name in schemes if name not in self.hosts and name not in forbidden]
        if unknown and found_on:
            unknown = await self._within_scope(conn, unknown, found_on)
        if unknown and register:
            # Due since yesterday, so that a batch which began a little earlier finds the host due as well.
            await hosts.register(conn, names=unknown, now=now - HOST_SET_BACK, schemes=schemes)
            await self._read_rules(conn, unknown)

    async def _within_scope(self, conn: Connection, unknown: list[str], found_on: str) -> list[str]:
        """The hosts that the scope of `found_on` includes; none if that host is not registered."""
        source = self.hosts.get(found_on)
        if source is None:
            return []
        ranges = await hosts.known_ranges(conn, names=unknown)
        return [
            name
            for name, range_ in zip(unknown, ranges, strict=True)
            if scope.allows(source.scope, found_on=found_on, target=name, target_range=range_)
        ]

    async def _read_rules(self, conn: Connection, names: Collection[str]) -> None:
        missing = [name for name in names if name not in self.hosts]
        rules = await hosts.host_rules(conn, names=missing) if missing else []
        removals: list[HostRemoval] = []
        # After the rules: removals that are newer than the revision of their host make the batch stale.
        if rules and rules[0].any_removals:
            domains = {name for host in rules for name in host_and_parents(host.name)}
            removals = await hosts.host_removals(conn, names=list(domains))
        for host in rules:
            self.hosts[host.name] = self._cached(host, removals_of(host.name, removals))

    def _cached(self, host: DoorHost, removals: Removals) -> CachedHost:
        rules = self.general_rules  # shared by all hosts without filters of their own
        if host.filters:
            rules = filters.compile(filters.combine(self.general_filters, host.filters))
        refusal, detail = REFUSALS.get(host.policy), host.policy_reason
        if host.own:
            refusal, detail = Reason.OWN_ADDRESS, OWN_ADDRESS_DETAIL
        return CachedHost(
            host.domain64,
            host.revision,
            refusal,
            detail,
            rules,
            scope_of(host),
            host.max_pages,
            host.max_depth,
            host.pages,
            strict=host.max_pages <= max(SMALL_HOST_PAGES, host.pages),
            permitted=host.permitted,
            removals=removals,
        )


def removals_of(name: str, removals: Sequence[HostRemoval]) -> Removals:
    """The removals that cover pages of a host."""
    if not removals:
        return ()
    names = host_and_parents(name)
    return tuple(
        (
            RemovalRule(name, paths=tuple(removal.paths), prefix=removal.prefix),
            f"{removal.reason} (since {removal.removed_at.astimezone(UTC):%Y-%m-%d})",
        )
        for removal in removals
        if removal.host == name or (removal.subdomains and removal.host in names)
    )


def scope_of(host: DoorHost) -> scope.LinkScope:
    ranges = (domain64.Range(r.lower or 0, r.upper or domain64.MAX) for r in host.scope_ranges)
    return scope.LinkScope(host.scope, tuple(ranges))
