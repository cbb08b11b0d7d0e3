"""Which index server may write to the index of a row: the one whose name is in the owner document.

The owner renews the document every few seconds and writes only while it does. Another server may take over when the
document has not changed for LEASE_SECONDS on its own clock, so no clocks are compared. A server that starts again in
its own directory, which it has locked, takes over at once: its earlier process is dead.
"""

import secrets
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from usher.errors import Conflict, NotFound, UsherError
from usher.index.opensearch.client import OpenSearchClient
from usher.private_files import write_file
from usher.telemetry import Log

log = Log("index")
OWNER: Final = "owner"  # the id of the document
OWNER_FILE: Final = "engine_owner"  # in the directory of the index server
RENEW_SECONDS: Final = 3.0
VALID_SECONDS: Final = 9.0  # without a renewal, after which the owner writes no more
LEASE_SECONDS: Final = 15.0  # without a renewal, after which another server may take over
POLL_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 0.5  # after a renewal that failed
REQUEST_SECONDS: Final = 5.0
RENEWAL_SECONDS: Final = 2.0  # for one request of a renewal, so that there is time for another node


class OwnerVersion(NamedTuple):
    """The owner document: whose it is, and what a change of it must name."""

    owner: str
    host: str
    seq_no: int
    primary_term: int


class Ownership:
    """The claim of one index server to an index."""

    def __init__(
        self, client: OpenSearchClient, state_index: str, *, owner: str, host: str
    ) -> None:
        self._client, self._index = client, state_index
        self._owner, self._host = owner, host
        self._version: OwnerVersion | None = None
        self._renewed_at = 0.0
        self._taken_by = ""  # the server that took over
        self._failure = ""  # why the last renewal failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="engine-owner", daemon=True)

    @property
    def name(self) -> str:
        return self._owner

    def acquire(self) -> None:
        """Become the owner; Conflict while another server is."""
        present = self._read()
        if present is not None and present.owner not in ("", self._owner):
            self._wait_for_end(present)
            present = self._read()
        self._write(present)
        self._thread.start()

    def check(self) -> None:
        """Conflict if this server may not write now."""
        if self._taken_by:
            hint = "Stop this index server: only one may write to the index of a row."
            raise Conflict(
                f"The index server {self._taken_by} has taken over the index.", hint=hint
            )
        if time.monotonic() - self._renewed_at > VALID_SECONDS:
            hint = "Usher retries while the cluster is unavailable."
            message = f"The claim to the index could not be renewed. {self._failure}".strip()
            raise Conflict(message, hint=hint)

    def release(self) -> None:
        """Let another server take over at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * REQUEST_SECONDS)
        if self._version is None or self._taken_by:
            return
        try:
            self._put(self._version, owner="")
        except UsherError as error:
            log.warning("engine_owner_not_released", error=error.message)

    def _wait_for_end(self, present: OwnerVersion) -> None:
        """Wait until the owner seems dead; Conflict as soon as it renews its claim."""
        log.warning("engine_owner_watched", owner=present.host, seconds=LEASE_SECONDS)
        until = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            latest = self._read()
            if latest is None or latest.owner in ("", self._owner):
                return
            if latest.seq_no != present.seq_no:
                hint = "Stop it, or choose another index: USHER_ENGINE_INDEX."
                message = f"The index server {latest.host} uses the index in OpenSearch."
                raise Conflict(message, hint=hint)

    def _keep(self) -> None:
        """Renew the claim until `release`."""
        while not self._stop.wait(RENEW_SECONDS):
            try:
                self._renew()
            except UsherError as error:
                self._failure = error.message
                log.warning("engine_owner_not_renewed", error=error.message)
            if self._taken_by:
                log.error("engine_owner_lost", owner=self._taken_by)
                return

    def _renew(self) -> None:
        try:
            self._write(self._version, RENEWAL_SECONDS)
        except Conflict:
            present = self._read(RENEWAL_SECONDS)
            if present is None or present.owner == self._owner:
                self._write(present, RENEWAL_SECONDS)  # an earlier answer was lost
            else:
                self._taken_by = present.host or "another server"

    def _read(self, seconds: float = REQUEST_SECONDS) -> OwnerVersion | None:
        try:
            answer = self._client.request("GET", f"/{self._index}/_doc/{OWNER}", seconds=seconds)
        except NotFound:
            return None
        source = answer["_source"]
        return OwnerVersion(
            str(source.get("owner", "")),
            str(source.get("host", "")),
            int(answer["_seq_no"]),
            int(answer["_primary_term"]),
        )

    def _write(self, expected: OwnerVersion | None, seconds: float = REQUEST_SECONDS) -> None:
        """Write the document if it is still the expected one; Conflict otherwise."""
        began = time.monotonic()
        answer = self._put(expected, owner=self._owner, seconds=seconds)
        self._version = OwnerVersion(
            self._owner, self._host, int(answer["_seq_no"]), int(answer["_primary_term"])
        )
        self._renewed_at = began

    def _put(
        self, expected: OwnerVersion | None, *, owner: str, seconds: float = REQUEST_SECONDS
    ) -> Any:  # noqa: ANN401 - JSON
        body = {"owner": owner, "host": self._host}
        query: dict[str, object] = {"op_type": "create"}
        if expected is not None:
            query = {"if_seq_no": expected.seq_no, "if_primary_term": expected.primary_term}
        path = f"/{self._index}/_doc/{OWNER}"
        return self._client.request("PUT", path, body, seconds=seconds, **query)


def owner_name(directory: Path) -> str:
    """The name of the index server in this directory, created once; the caller has locked the directory."""
    file = directory / OWNER_FILE
    try:
        name = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        name = ""
    if not name:
        name = secrets.token_hex(8)
        write_file(file, name.encode("ascii"))
    return name
