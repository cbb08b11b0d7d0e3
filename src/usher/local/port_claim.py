"""Choose the ports of a run, and move components whose port changed to their new address.

A component is identified by its address: its chunks, its placements and the directory with its files belong to it. When
a port changes, the component of this data directory moves with all of them, so that what it holds stays searchable.
"""

import errno
import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from usher.chunk_store import (
    BUILT_DIRECTORY,
    CONTENT_DIRECTORY,
    INDEX_DIRECTORY,
    directory_name,
)
from usher.crawl.own_endpoints import PORTS_FILE
from usher.db.pool import Connection, Database
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict
from usher.http.server.listen import read_bind
from usher.local.port_owner import UNKNOWN, port_owner
from usher.local.ports import LOOPBACK, Ports, StoredPorts, free_port, is_free

store = load_statements(__file__)
# Role → type of its component, and the directory with a folder for each address.
COMPONENTS: Final = {
    "crawler": ("crawler", CONTENT_DIRECTORY),
    "builder": ("index-builder", BUILT_DIRECTORY),
    "server": ("index-server", INDEX_DIRECTORY),
    "front": ("front-end", ""),
}
ROLE_NAMES: Final = {
    "mgmt": "MGMT",
    "front": "the search page",
    "crawler": "the crawler",
    "builder": "the index builder",
    "server": "the index server",
    "site": "the demo site",
}


@dataclass(frozen=True, slots=True)
class ComponentMove:
    """A component of this data directory that gets another port."""

    role: str
    old: int
    new: int

    @property
    def hosts(self) -> dict[str, str]:
        return {"old": f"{LOOPBACK}:{self.old}", "new": f"{LOOPBACK}:{self.new}"}

    @property
    def type(self) -> str:
        return COMPONENTS[self.role][0]

    def folders(self, data: Path) -> tuple[Path, Path] | None:
        """Its folders at the old and the new address; None if its files do not depend on its address."""
        if not (parent := COMPONENTS[self.role][1]):
            return None
        old, new = (data / parent / directory_name(host) for host in self.hosts.values())
        return old, new


async def claim_ports(
    db: Database, data: Path, *, say: Callable[[str], None], unused: Collection[str] = ()
) -> Ports:
    """The ports of this run, stored in the data directory; tells the user which ports were in use.

    `unused` roles do not listen at their port in this run.
    """
    last, has_run = StoredPorts.read(data), (data / PORTS_FILE).exists()
    await finish_moves(db, data, last)
    chosen = await without_conflicts(db, data, last, last.choose())
    moves = list(changed_ports(last.ports, chosen.ports)) if has_run else []
    chosen = replace(chosen, moved_from={move.role: move.old for move in moves})
    chosen.write(data)
    await finish_moves(db, data, chosen)
    for line in replaced_lines(chosen, unused):
        say(line)
    return chosen.ports


def check_front(address: str) -> None:
    """Fail if the search page cannot listen at the address that the user gave; no other one replaces it."""
    bind = read_bind(address)
    try:
        family, _, _, _, place = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            owner = port_owner(bind.port).replace(UNKNOWN, UNKNOWN.capitalize())
            hint = (
                "Give another port with --front, or leave --front out: then Usher chooses a port."
            )
            raise Conflict(f"{owner} uses port {bind.port}.", hint=hint) from error
        why = "the name does not resolve" if isinstance(error, socket.gaierror) else error.strerror
        hint = "Give an address of this machine and a port that this user may use, with --front."
        raise BadInput(f"The search page cannot listen at {bind}: {why}.", hint=hint) from error


def replaced_lines(chosen: StoredPorts, unused: Collection[str]) -> Iterator[str]:
    """A sentence about the port of the search page, and one about all others that are not their own."""
    roles = [role for role in chosen.replaced if role not in unused]
    if "front" in roles:
        own, port = chosen.replaced["front"], chosen.ports.front
        instead = f"{ROLE_NAMES['front']} uses port {port}"
        owner = port_owner(own).replace(UNKNOWN, UNKNOWN.capitalize())
        yield (
            f"{owner} uses port {own}, so {instead} in this run."
            if not is_free(own)
            else f"Another component uses {LOOPBACK}:{own}, so {instead}."
        )
    ports = asdict(chosen.ports)
    others = [f"{ROLE_NAMES[role]} {ports[role]}" for role in roles if role != "front"]
    if others:
        yield f"Other ports in this run, because theirs are in use: {', '.join(others)}."


def changed_ports(last: Ports, chosen: Ports) -> Iterator[ComponentMove]:
    for role in COMPONENTS:
        old, new = getattr(last, role), getattr(chosen, role)
        if old != new:
            yield ComponentMove(role, old, new)


async def without_conflicts(
    db: Database, data: Path, last: StoredPorts, chosen: StoredPorts
) -> StoredPorts:
    """Leave out moves to an address that another component has; such a role keeps its last port if it is free."""
    ports, replaced = asdict(chosen.ports), dict(chosen.replaced)
    for move in changed_ports(last.ports, chosen.ports):
        async with db.transaction() as conn:
            is_taken = await has_component(conn, move)
        folders = move.folders(data)
        if is_taken or (folders and all(folder.exists() for folder in folders)):
            ports[move.role] = move.old if is_free(move.old) else free_port()
            replaced[move.role] = last.replaced.get(move.role, move.old)
    return StoredPorts(Ports(**ports), replaced)


async def has_component(conn: Connection, move: ComponentMove) -> bool:
    """Whether both addresses have a component, so that the old one cannot move."""
    return all(
        [
            await store.component_at.column(conn, host=host, type=move.type)
            for host in move.hosts.values()
        ]
    )


async def finish_moves(db: Database, data: Path, stored: StoredPorts) -> None:
    """Move folders and components; a run that was killed meanwhile is completed by the next one."""
    if not stored.moved_from:
        return
    for role, old in stored.moved_from.items():
        move = ComponentMove(role, old, getattr(stored.ports, role))
        folders = move.folders(data)
        if folders and folders[0].exists() and not folders[1].exists():
            folders[0].rename(folders[1])
        async with db.transaction() as conn:
            await store.move_component.column(conn, **move.hosts, type=move.type)
    replace(stored, moved_from={}).write(data)
