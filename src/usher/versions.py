"""Which versions of Usher may run together: those that are at most one minor version apart.

The processes that use the database (MGMT, watchdog, manager, scheduler) are upgraded before the components that call
MGMT, so no component may be newer than they are. Patch versions do not matter.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.|$)")


class MinorVersion(NamedTuple):
    """The first two numbers of a version."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class ComponentGroupVersion:
    """The components of one type that declared the same version, one of them by name."""

    version: str
    type: str | None
    number: int
    host: str

    def __str__(self) -> str:
        more = f" and {self.number - 1} more" if self.number > 1 else ""
        return f"{self.type or 'component'} {self.host}{more} ({self.version})"


@dataclass(frozen=True, slots=True)
class RunningVersions:
    """The versions of the processes that use the database, and those of the components."""

    processes: Sequence[str] = ()
    components: Sequence[ComponentGroupVersion] = ()

    @property
    def is_uniform(self) -> bool:
        """Whether all have the same version."""
        return len({*self.processes, *(item.version for item in self.components)}) <= 1


def minor_version(version: str) -> MinorVersion | None:
    """The minor version; None if it is unknown or not a version of Usher."""
    match = VERSION.match(version)
    return MinorVersion(int(match[1]), int(match[2])) if match else None


def are_compatible(one: MinorVersion, other: MinorVersion) -> bool:
    """Whether both may run together: the first minor version of a major one continues the last of the one before."""
    older, newer = sorted((one, other))
    if older.major == newer.major:
        return newer.minor - older.minor <= 1
    return newer == MinorVersion(older.major + 1, 0)


def version_problem(mgmt: str, component: str) -> str:
    """Why a component of one version cannot call an MGMT of another; empty if it can, or if one is unknown."""
    server, client = minor_version(mgmt), minor_version(component)
    if server is None or client is None or server == client:
        return ""
    if client > server:
        return f"MGMT has {mgmt}, older than the component's {component}: upgrade MGMT first."
    if not are_compatible(server, client):
        return f"The component has {component}, more than one minor version before MGMT's {mgmt}: upgrade it."
    return ""


def version_problems(running: RunningVersions) -> Iterator[str]:
    """What is wrong with the versions that run together, as sentences."""
    processes = sorted(filter(minor_version, running.processes), key=order_key)
    components = [item for item in running.components if minor_version(item.version)]
    if processes:
        oldest, newest = processes[0], processes[-1]
        if newer := [item for item in components if order_key(item.version) > order_key(oldest)]:
            yield f"A process that uses the database has {oldest}, older than components: {named(newer)}."
        if not are_compatible(order_key(oldest), order_key(newest)):
            yield f"Processes that use the database have {oldest} and {newest}, more than one minor version apart."
    versions = map(order_key, [*processes, *(item.version for item in components)])
    latest = max(versions, default=MinorVersion(0, 0))
    if old := [item for item in components if not are_compatible(order_key(item.version), latest)]:
        yield f"Components are more than one minor version older than {latest}: {named(old)}."


def order_key(version: str) -> MinorVersion:
    """The minor version; 0.0 if it is unknown."""
    return minor_version(version) or MinorVersion(0, 0)


def named(components: Sequence[ComponentGroupVersion]) -> str:
    """`crawler 10.0.0.7:5000 and 2 more (0.2.0), front-end 10.0.0.9:80 (0.2.0)`."""
    return ", ".join(map(str, components))


def version_counts(running: RunningVersions) -> str:
    """`0.2.0 (4 components, processes that use the database), 0.1.0 (1 component)`."""
    versions = {*running.processes, *(item.version for item in running.components)}
    texts = []
    for version in sorted(versions, reverse=True):
        number = sum(item.number for item in running.components if item.version == version)
        parts = [f"{number} {'component' if number == 1 else 'components'}"] if number else []
        parts += ["processes that use the database"] if version in running.processes else []
        texts.append(f"{version or 'unknown'} ({', '.join(parts)})")
    return ", ".join(texts)
