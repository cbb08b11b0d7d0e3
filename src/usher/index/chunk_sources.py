"""Downloads index chunks to an index server, from their builder or from another server.

A host that does not respond is tried last for a while. If every host repeatedly says that it does not have a chunk, the
chunk is lost and the loader reports it to MGMT.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from usher.certificates import SYSTEM_AUTHORITIES, TrustedAuthorities
from usher.chunk_store import ChunkStore
from usher.component_health import STORE_PROBLEM
from usher.errors import (
    BadContent,
    DiskUnusable,
    NotFound,
    StoreUnusable,
    Unreachable,
    UsherError,
)
from usher.http.client.download import download_chunk
from usher.http.client.object_transfer import download_object
from usher.messages.builder import SourceChunk
from usher.messages.index_server import MissingChunk, ServerChunk

DOWNLOAD_TIMEOUT_SECONDS: Final = 5.0
AVOID_SECONDS: Final = 30.0  # during which a silent host is tried last
RETRY_SECONDS: Final = (1.0, 60.0)  # before a failed chunk is tried again: at first, at most
MAX_REASON_CHARACTERS: Final = 1_000
LOST_TRIES, LOST_SECONDS = 3, 30.0  # a chunk that no host has so often, and for so long, is lost
STORE: Final = ""  # stands for the object store among the hosts
TicketFor = Callable[[str], Awaitable[str]]  # returns the ticket for a host


@dataclass(frozen=True, slots=True)
class UnavailableChunk:
    """A chunk that no host has: since when, after how many tries, and the report for MGMT."""

    since: float
    tries: int
    report: MissingChunk


class ChunkSources:
    """Downloads chunks and remembers the failures."""

    def __init__(
        self,
        store: ChunkStore,
        ticket_for: TicketFor | None = None,
        authorities: TrustedAuthorities = SYSTEM_AUTHORITIES,
    ) -> None:
        self.store = store
        self._ticket_for, self._authorities = ticket_for or no_ticket, authorities
        self._avoided_until: dict[str, float] = {}  # by host
        self._retries: dict[int, tuple[float, float]] = {}  # by chunk: when to retry, and the pause
        self._unavailable: dict[int, UnavailableChunk] = {}
        self.lost_seconds = LOST_SECONDS
        self.store_problem = ""  # why the last download from the object store failed

    def may_try(self, chunk: int) -> bool:
        return now() >= self._retries.get(chunk, (0.0, 0.0))[0]

    def waiting(self) -> int:
        """The number of chunks that wait for their next try."""
        return sum(now() < retry_at for retry_at, _ in self._retries.values())

    def add_failure(self, chunk: int, *, unsound: str = "") -> None:
        """Delay the next try of a chunk, longer each time.

        `unsound` says why every copy is bad: such a chunk counts as lost at once.
        """
        pause = min(2 * self._retries.get(chunk, (0.0, RETRY_SECONDS[0] / 2))[1], RETRY_SECONDS[1])
        self._retries[chunk] = (now() + pause, pause)
        if unsound:
            report = MissingChunk(chunk, unsound[:MAX_REASON_CHARACTERS])
            since = now() - self.lost_seconds
            self._unavailable[chunk] = UnavailableChunk(since, LOST_TRIES, report)

    def forget_failures(self, chunk: int) -> None:
        self._retries.pop(chunk, None)
        self._unavailable.pop(chunk, None)

    def pop_lost(self) -> list[MissingChunk]:
        """The chunks that are lost; each is returned once, and again if it stays lost for as long."""
        latest = now() - self.lost_seconds
        lost = [
            chunk
            for chunk, state in self._unavailable.items()
            if state.tries >= LOST_TRIES and state.since <= latest
        ]
        return [self._unavailable.pop(chunk).report for chunk in lost]

    async def fetch(self, chunk: ServerChunk) -> bool:
        """Ensure that a chunk is in the store; True if it already was, Unreachable if no host has it."""
        file = await asyncio.to_thread(self.store.find, chunk.chunk_id)
        if file and file.sha256 == chunk.index_sha256:
            return True
        errors = {}
        for host in self._hosts(chunk):
            try:
                await (self._download(chunk, host) if host else self._download_object(chunk))
            except DiskUnusable:
                raise
            except UsherError as error:
                errors[host] = error
                if isinstance(error, Unreachable):
                    self._avoided_until[host] = now() + AVOID_SECONDS
                if host == STORE and isinstance(error, Unreachable | StoreUnusable):
                    self.store_problem = f"{STORE_PROBLEM}: {error.message}"
            else:
                self.store_problem = ""
                return False
        self._note_unavailable(chunk, errors)
        reasons = " ".join(error.message for error in errors.values())
        raise Unreachable(reasons or f"No host has the index of chunk {chunk.chunk_id}.")

    def _note_unavailable(self, chunk: ServerChunk, errors: dict[str, UsherError]) -> None:
        """Count a try if no host has the chunk; a host that did not respond may have it, except the builder."""
        undecided = {
            host for host, error in errors.items() if not isinstance(error, NotFound | BadContent)
        }
        builder = chunk.index_builder_host
        is_silent = undecided == {builder} and isinstance(errors[builder], Unreachable)
        if not errors or (undecided and not is_silent):
            self._unavailable.pop(chunk.chunk_id, None)
            return
        reason = " ".join(error.message for error in errors.values())[:MAX_REASON_CHARACTERS]
        report = MissingChunk(chunk.chunk_id, reason, is_silent)
        before = self._unavailable.get(chunk.chunk_id)
        if before is None or before.report.builder_silent != is_silent:
            before = UnavailableChunk(now(), 0, report)
        self._unavailable[chunk.chunk_id] = replace(before, tries=before.tries + 1, report=report)

    async def _download(self, chunk: ServerChunk, host: str) -> None:
        file = await download_chunk(
            host,
            chunk.chunk_id,
            "index",
            self.store.path(chunk.chunk_id),
            chunk.index_sha256,
            size=chunk.index_bytes,
            ticket=await self._ticket_for(host),
            timeout_seconds=DOWNLOAD_TIMEOUT_SECONDS,
        )
        self.store.remember_checksum(chunk.chunk_id, file)

    async def _download_object(self, chunk: ServerChunk) -> None:
        file = await download_object(
            chunk.url,
            chunk.chunk_id,
            "index",
            self.store.path(chunk.chunk_id),
            chunk.index_sha256,
            size=chunk.index_bytes,
            timeout_seconds=DOWNLOAD_TIMEOUT_SECONDS,
            authorities=self._authorities,
        )
        self.store.remember_checksum(chunk.chunk_id, file)

    def _hosts(self, chunk: ServerChunk) -> list[str]:
        """The builder first, then the peers in random order; hosts that did not respond lately come last.

        An index that is in the object store is there first (an empty host), and maybe not at the builder.
        """
        peers = random.sample(chunk.peers, len(chunk.peers))
        builder = [] if chunk.url else [chunk.index_builder_host]
        hosts = [STORE] * bool(chunk.url) + list(filter(None, dict.fromkeys([*builder, *peers])))
        return sorted(hosts, key=lambda host: self._avoided_until.get(host, 0.0) > now())


async def no_ticket(_host: str) -> str:
    """No ticket: components on one machine need none."""
    return ""


async def download_index_chunk(
    source: SourceChunk,
    path: Path,
    ticket_for: TicketFor = no_ticket,
    authorities: TrustedAuthorities = SYSTEM_AUTHORITIES,
) -> None:
    """Download an index chunk from the object store or any of its servers; Unreachable has the reasons if all fail."""
    reasons = []
    if source.url:
        try:
            await download_object(
                *(source.url, source.chunk_id, "index", path, source.sha256),
                size=source.bytes,
                authorities=authorities,
            )
        except DiskUnusable:
            raise
        except UsherError as error:
            reasons.append(error.message)
        else:
            return
    for host in random.sample(source.hosts, len(source.hosts)):
        try:
            await download_chunk(
                *(host, source.chunk_id, "index", path, source.sha256),
                size=source.bytes,
                ticket=await ticket_for(host),
                timeout_seconds=DOWNLOAD_TIMEOUT_SECONDS,
            )
        except DiskUnusable:
            raise
        except UsherError as error:
            reasons.append(error.message)
        else:
            return
    raise Unreachable(" ".join(reasons) or f"No server has the index of chunk {source.chunk_id}.")


def now() -> float:
    return asyncio.get_running_loop().time()
