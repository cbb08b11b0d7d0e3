"""Index chunks brought to a server's shelf: from their builder, or from another server that has them.

Comes from MGMT, which says who has what; goes to files that are whole and what was promised. Whoever did not answer is
asked last for a while. What nobody has, however often they are asked, is lost: MGMT is to hear of it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from usher.chunk_store import Shelf
from usher.errors import BadContent, DiskUnusable, NotFound, Unreachable, UsherError
from usher.http.client.download import download_chunk
from usher.messages.builder import SourceChunk
from usher.messages.index_server import MissingChunk, ServerChunk

PATIENCE: Final = 5.0  # seconds
AVOIDED_SECONDS: Final = 30.0
AGAIN: Final = (1.0, 60.0)  # seconds before a chunk is tried again: at first, at most
LONGEST_REASON: Final = 1_000
SURE_TRIES, SURE_SECONDS = 3, 30.0  # so often, and for so long, nobody had it: it is lost
TicketFor = Callable[[str], Awaitable[str]]  # a ticket for the component at that host


@dataclass(frozen=True, slots=True)
class UnavailableChunk:
    """A chunk that nobody had: since when, how often in a row, and the last answers."""

    since: float
    tries: int
    said: MissingChunk


class ChunkSources:
    """Where chunks come from, and which of them cannot be had just now."""

    def __init__(self, shelf: Shelf, ticket_for: TicketFor | None = None) -> None:
        self.shelf = shelf
        self._ticket_for = ticket_for or no_ticket
        self._avoided: dict[str, float] = {}  # host, and until when
        self._failed: dict[int, tuple[float, float]] = {}  # chunk, when to try again, and its pause
        self._nowhere: dict[int, UnavailableChunk] = {}
        self.sure_seconds = SURE_SECONDS

    def may_try(self, chunk: int) -> bool:
        return now() >= self._failed.get(chunk, (0.0, 0.0))[0]

    def resting(self) -> int:
        """How many chunks are not to be tried yet."""
        return sum(now() < when for when, _ in self._failed.values())

    def failed(self, chunk: int, *, unsound: str = "") -> None:
        """It could not be had, or not be used: not again for a while, which gets longer.

        `unsound` says why every copy of it is bad: MGMT hears of that at once, and has it built again or parks it.
        """
        pause = min(2 * self._failed.get(chunk, (0.0, AGAIN[0] / 2))[1], AGAIN[1])
        self._failed[chunk] = (now() + pause, pause)
        if unsound:
            said = MissingChunk(chunk, unsound[:LONGEST_REASON])
            self._nowhere[chunk] = UnavailableChunk(now() - self.sure_seconds, SURE_TRIES, said)

    def good(self, chunk: int) -> None:
        self._failed.pop(chunk, None)
        self._nowhere.pop(chunk, None)

    def lost(self) -> list[MissingChunk]:
        """Chunks that nobody has, for sure; each is told once, and again if that goes on for as long."""
        before = now() - self.sure_seconds
        lost = [
            chunk
            for chunk, one in self._nowhere.items()
            if one.tries >= SURE_TRIES and one.since <= before
        ]
        return [self._nowhere.pop(chunk).said for chunk in lost]

    async def fetch(self, one: ServerChunk) -> bool:
        """See that a chunk is on the shelf; whether it was already. Unreachable if nobody has it."""
        kept = await asyncio.to_thread(self.shelf.find, one.chunk_id)
        if kept and kept.sha256 == one.index_sha256:
            return True
        errors = {}
        for host in self._in_order(one):
            try:
                await self._pull(one, host)
            except DiskUnusable:
                raise
            except UsherError as error:
                errors[host] = error
                if isinstance(error, Unreachable):
                    self._avoided[host] = now() + AVOIDED_SECONDS
            else:
                return False
        self._judge(one, errors)
        reasons = " ".join(error.message for error in errors.values())
        raise Unreachable(reasons or f"Nobody has the index of chunk {one.chunk_id}.")

    def _judge(self, one: ServerChunk, errors: dict[str, UsherError]) -> None:
        """Whether all who answered have it no more; those who did not answer may, but for a builder that is gone."""
        unsure = {
            host for host, error in errors.items() if not isinstance(error, NotFound | BadContent)
        }
        silent = unsure == {one.index_builder_host}
        silent &= isinstance(errors.get(one.index_builder_host), Unreachable)
        if not errors or (unsure and not silent):
            self._nowhere.pop(one.chunk_id, None)
            return
        reason = " ".join(error.message for error in errors.values())[:LONGEST_REASON]
        said = MissingChunk(one.chunk_id, reason, silent)
        was = self._nowhere.get(one.chunk_id)
        if was is None or was.said.builder_silent != silent:  # silence is no part of a denial
            was = UnavailableChunk(now(), 0, said)
        self._nowhere[one.chunk_id] = replace(was, tries=was.tries + 1, said=said)

    async def _pull(self, one: ServerChunk, host: str) -> None:
        kept = await download_chunk(
            host,
            one.chunk_id,
            "index",
            self.shelf.path(one.chunk_id),
            one.index_sha256,
            size=one.index_bytes,
            ticket=await self._ticket_for(host),
            patience=PATIENCE,
        )
        self.shelf.remember(one.chunk_id, kept)

    def _in_order(self, one: ServerChunk) -> list[str]:
        """The builder first, then any of the others; last of all who did not answer lately."""
        others = random.sample(one.peers, len(one.peers))
        hosts = dict.fromkeys([one.index_builder_host, *others])
        return sorted(filter(None, hosts), key=lambda host: self._avoided.get(host, 0.0) > now())


async def no_ticket(_host: str) -> str:
    """For components of one machine, which need none."""
    return ""


async def download_index_chunk(
    one: SourceChunk, to: Path, ticket_for: TicketFor = no_ticket
) -> None:
    """An index chunk from whichever of the servers that have it; what each of them said, if none gives it."""
    reasons = []
    for host in random.sample(one.hosts, len(one.hosts)):
        try:
            await download_chunk(
                *(host, one.chunk_id, "index", to, one.sha256),
                size=one.bytes,
                ticket=await ticket_for(host),
                patience=PATIENCE,
            )
        except DiskUnusable:
            raise
        except UsherError as error:
            reasons.append(error.message)
        else:
            return
    raise Unreachable(" ".join(reasons) or f"No server has the index of chunk {one.chunk_id}.")


def now() -> float:
    return asyncio.get_running_loop().time()
