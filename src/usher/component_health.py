"""Whether a component can do its work, and that MGMT hears when that changes.

Comes from whoever finds out; goes to MGMT as the state of the component, and to the watchdog as its health.
"""

import shutil
from pathlib import Path
from typing import Final

from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.components import ComponentState
from usher.telemetry import Log

log = Log("index")
LEAST_FREE: Final = 50_000_000  # bytes of a disk; with less nothing more is taken on
LONGEST: Final = 1_000
DISK_FULL: Final = (
    "Disk full"  # how the reason begins; `usher status` and `usher crawl` look for it
)


class ComponentHealth:
    """What is wrong, in words; empty as long as nothing is."""

    def __init__(self, state_in_trouble: ComponentState = "error") -> None:
        self.trouble = ""
        self._state_in_trouble = state_in_trouble
        self._declared = False  # whether MGMT believes that something is wrong

    def health(self) -> str:
        return "error" if self.trouble else "healthy"

    async def be(self, mgmt: Client, trouble: str) -> None:
        """So it is now; MGMT is told once, and again if it did not hear."""
        self.trouble = trouble
        if bool(trouble) == self._declared:
            return
        log.warning("unfit" if trouble else "fit_again", trouble=trouble)
        try:
            await mgmt.set_state(
                self._state_in_trouble if trouble else "online", reason=trouble[:LONGEST]
            )
        except UsherError as error:
            log.warning("state_not_heard", error=str(error))
            return
        self._declared = bool(trouble)


def disk_problem(directory: Path) -> str:
    """Why nothing more should be written there; empty if there is space."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent  # the first file creates it
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be used: {error.strerror}."
    if free >= LEAST_FREE:
        return ""
    return f"{DISK_FULL}: only {free / 1e6:.0f} MB are free at {directory}."
