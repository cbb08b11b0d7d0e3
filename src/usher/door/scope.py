"""Scope: whether a link found on one host may bring in a page of another.

Comes from a host's own setting and its multirange of domain64; goes to the doorkeeper, which asks before it registers
or knocks for anything that says where it was found.
"""

from dataclasses import dataclass
from typing import Literal

from usher.domain64 import Range, split

ScopeKind = Literal["host", "domain", "listed", "any"]


@dataclass(frozen=True, slots=True)
class LinkScope:
    """How far links lead: this host, its registrable domain, the listed ranges besides this host, or anywhere."""

    kind: ScopeKind = "host"
    ranges: tuple[Range, ...] = ()


def allows(scope: LinkScope, *, found_on: str, target: str, place: Range | None = None) -> bool:
    """Both hosts by name, with their port; `place` is the narrowest range known to hold the target's number.

    That is `Range(n, n + 1)` for a registered host, else `domain_range` if its domain has a number, else `tld_range` if
    its TLD has one, else None. A new host may get any number in its place, so all of it must be listed.
    """
    if scope.kind == "any" or found_on == target:
        return True
    if scope.kind == "domain":
        one, other = split(found_on), split(target)
        return (one.tld, one.domain) == (other.tld, other.domain)
    if scope.kind == "listed" and place is not None:
        return any(one.start <= place.start and place.end <= one.end for one in scope.ranges)
    return False
