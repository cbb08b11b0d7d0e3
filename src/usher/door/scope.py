"""The scope of a host: whether a link on its pages may bring in a page of another host."""

from dataclasses import dataclass
from typing import Literal

from usher.domain64 import Range, split

ScopeKind = Literal["host", "domain", "listed", "any"]


@dataclass(frozen=True, slots=True)
class LinkScope:
    """Where links may lead: this host, its registrable domain, this host and the listed ranges, or any host."""

    kind: ScopeKind = "host"
    ranges: tuple[Range, ...] = ()


def allows(
    scope: LinkScope, *, found_on: str, target: str, target_range: Range | None = None
) -> bool:
    """Whether the scope of the host `found_on` includes the target; both are host names with their port.

    `target_range` is the narrowest known range of the target's domain64: its own number if it is registered, else the
    range of its domain, else that of its TLD, else None. A new host may get any number of the range, so a listed range
    must contain all of it.
    """
    if scope.kind == "any" or found_on == target:
        return True
    if scope.kind == "domain":
        source, other = split(found_on), split(target)
        return (source.tld, source.domain) == (other.tld, other.domain)
    if scope.kind == "listed" and target_range is not None:
        start, end = target_range.start, target_range.end
        return any(listed.start <= start and end <= listed.end for listed in scope.ranges)
    return False
