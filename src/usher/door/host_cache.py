"""What a doorkeeper knows of hosts: number, policy, filters, limits, each with the revision it was true at.

Every batch has knowledge of its own, so that nothing another batch learns or forgets meanwhile can disturb it; what it
learned joins the doorkeeper's memory once it is committed. The statements find out what is out of date.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from usher import domain64
from usher.db.pool import Connection
from usher.door import filters, hosts, scope
from usher.door.hosts import HostRules
from usher.door.rules import HOST_SET_BACK, Reason

SMALL_HOST_PAGES = (
    10_000  # hosts that may have no more pages than this are counted when they first knock
)
MAX_CACHED_HOSTS = (
    300_000  # hosts remembered at most; then all are forgotten, and learned again as they come
)
OWN_ADDRESS_DETAIL = "a component of Usher listens there"
REFUSALS = {"blocked": Reason.HOST_BLOCKED, "paused": Reason.HOST_PAUSED}


@dataclass(frozen=True, slots=True)
class CachedHost:
    """What is known of a host; `refusal` where its policy lets nothing in."""

    domain64: int
    revision: int
    refusal: Reason | None
    detail: str
    rules: filters.CompiledFilters
    scope: scope.LinkScope
    max_pages: int
    max_depth: int
    pages: int  # at least so many, where it was found to be full
    strict: bool  # whether it must be asked of every batch how many new pages may come in
    permitted: bool = False  # as a private host, by the operator


@dataclass(slots=True)
class HostCache:
    """Hosts by name, and the house they were learned in; at revision 0 nothing is known yet."""

    hosts: dict[str, CachedHost] = field(default_factory=dict)
    house_revision: int = 0
    house_filters: list[dict[str, object]] = field(default_factory=list)
    house_rules: filters.CompiledFilters = field(default_factory=lambda: filters.compile([]))

    def part(self, names: Iterable[str]) -> "HostCache":
        """What of this concerns these hosts, apart from the whole."""
        found = {name: self.hosts[name] for name in names if name in self.hosts}
        return HostCache(found, self.house_revision, self.house_filters, self.house_rules)

    def joined(self, learned: "HostCache") -> "HostCache":
        """The memory with what a batch learned in it; a batch that met a newer house begins a new one."""
        if self.house_revision != learned.house_revision or len(self.hosts) > MAX_CACHED_HOSTS:
            return learned
        self.hosts.update(learned.hosts)
        return self

    def lacks(self, names: Collection[str]) -> bool:
        return not self.house_revision or any(name not in self.hosts for name in names)

    async def learn(
        self,
        conn: Connection,
        schemes: Mapping[str, int],
        *,
        found_on: str,
        register: bool,
        now: datetime,
        forbidden: Collection[str] = (),
    ) -> None:
        """Ask for every host not known, and register those that nobody has, as far as the finder's scope reaches.

        Hosts that are `forbidden` to the page that names them are never registered.
        """
        if not self.house_revision:
            house = await hosts.door_settings(conn)
            self.house_revision, self.house_filters = house.revision, house.filters
            self.house_rules = filters.compile(house.filters)
        await self._ask(conn, [*schemes, *([found_on] if found_on else [])])
        unknown = [name for name in schemes if name not in self.hosts and name not in forbidden]
        if unknown and found_on:
            unknown = await self._within_reach(conn, unknown, found_on)
        if unknown and register:
            # Due since yesterday: a batch begun a little before this one must find the host due as well.
            await hosts.register(conn, names=unknown, now=now - HOST_SET_BACK, schemes=schemes)
            await self._ask(conn, unknown)

    async def _within_reach(self, conn: Connection, unknown: list[str], found_on: str) -> list[str]:
        """Those that the scope of the finding host lets it register; a finder nobody knows reaches none."""
        finder = self.hosts.get(found_on)
        if finder is None:
            return []
        places = await hosts.known_ranges(conn, names=unknown)
        return [
            name
            for name, place in zip(unknown, places, strict=True)
            if scope.allows(finder.scope, found_on=found_on, target=name, place=place)
        ]

    async def _ask(self, conn: Connection, names: Collection[str]) -> None:
        missing = [name for name in names if name not in self.hosts]
        for host in await hosts.host_rules(conn, names=missing) if missing else []:
            self.hosts[host.name] = self._known(host)

    def _known(self, host: HostRules) -> CachedHost:
        rules = self.house_rules  # most hosts have no filters of their own, and share the house's
        if host.filters:
            rules = filters.compile(filters.combine(self.house_filters, host.filters))
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
        )


def scope_of(host: HostRules) -> scope.LinkScope:
    ranges = (
        domain64.Range(one.lower or 0, one.upper or domain64.MAX) for one in host.scope_ranges
    )
    return scope.LinkScope(host.scope, tuple(ranges))
