"""Uploads of chunk files to the object store, with URLs from MGMT; while the store is away, they wait.

The component renews its leases meanwhile, so that nothing is lost, and reports the problem as its health.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from usher.background import wait_up_to
from usher.certificates import SYSTEM_AUTHORITIES, TrustedAuthorities
from usher.chunk_store import StoredFile
from usher.component_health import STORE_PROBLEM
from usher.errors import BadContent, BadInput, NotFound, StoreUnusable, Unreachable
from usher.http.client.mgmt_client import Client
from usher.http.client.object_transfer import upload_object
from usher.telemetry import UPLOAD_FAILURES, UPLOADED_CHUNKS, Log

log = Log("store")
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 10.0
RETRIED: Final = (Unreachable, StoreUnusable, BadContent)


class ChunkUpload:
    """The uploads of one component; `report` is called when they begin to wait, and when they no longer do."""

    def __init__(
        self,
        mgmt: Client,
        kind: Literal["content", "index"],
        *,
        stop: asyncio.Event,
        report: Callable[[], Awaitable[None]],
        authorities: TrustedAuthorities = SYSTEM_AUTHORITIES,
    ) -> None:
        self._mgmt, self._kind = mgmt, kind
        self._stop, self._report = stop, report
        self._authorities = authorities
        self._failures: dict[int, str] = {}  # by chunk

    @property
    def problem(self) -> str:
        """Why uploads wait; empty if none does."""
        return next(iter(self._failures.values()), "")

    async def upload(self, chunk: int, file: StoredFile) -> bool:
        """Upload a file, however long the store is away; False if the component has to keep it.

        That is so if the component stops, or if MGMT has no store any more or the store takes no file of this size.

        Conflict if another component has the chunk.
        """
        try:
            is_stored = await self._upload(chunk, file)
        finally:
            was_waiting = self._failures.pop(chunk, "")
        if was_waiting and not self._failures:
            await self._report()
        return is_stored

    async def _upload(self, chunk: int, file: StoredFile) -> bool:
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                size, sha256 = file.size, file.sha256
                target = await self._mgmt.upload_url(chunk, self._kind, sha256=sha256, size=size)
                await upload_object(
                    target.url, chunk, self._kind, file, authorities=self._authorities
                )
            except (BadInput, NotFound) as error:
                log.warning("kept", chunk=chunk, error=error.message)
                return False
            except RETRIED as error:
                UPLOAD_FAILURES.labels(self._kind).inc()
                log.warning("not_uploaded", chunk=chunk, error=error.message)
                self._failures[chunk] = f"{STORE_PROBLEM}: {error.message}"
                await self._report()
                if await wait_up_to(pause, self._stop):
                    return False
                pause = min(2 * pause, MAX_RETRY_SECONDS)
            else:
                UPLOADED_CHUNKS.labels(self._kind).inc()
                return True
