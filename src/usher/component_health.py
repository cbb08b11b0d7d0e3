"""The health of a component: MGMT gets its state when it changes, and the watchdog asks for it."""

import shutil
from pathlib import Path
from typing import Final

from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.components import ComponentState
from usher.telemetry import Log

log = Log("index")
MIN_FREE_BYTES: Final = 50_000_000  # with less free space a component takes no new work
MAX_REASON_LENGTH: Final = 1_000
DISK_FULL: Final = (
    "Disk full"  # the start of the reason; `usher status` and `usher crawl` look for it
)


class ComponentHealth:
    """The component's problem in words; empty while there is none."""

    def __init__(self, problem_state: ComponentState = "error") -> None:
        self.problem = ""
        self._problem_state = problem_state
        self._is_reported = False  # MGMT knows that there is a problem

    def health(self) -> str:
        return "error" if self.problem else "healthy"

    async def set_problem(self, mgmt: Client, problem: str) -> None:
        """Set or clear the problem; report each change to MGMT until the report succeeds."""
        self.problem = problem
        if bool(problem) == self._is_reported:
            return
        log.warning("unfit" if problem else "fit_again", trouble=problem)
        state: ComponentState = self._problem_state if problem else "online"
        try:
            await mgmt.set_state(state, reason=problem[:MAX_REASON_LENGTH])
        except UsherError as error:
            log.warning("state_not_heard", error=str(error))
            return
        self._is_reported = bool(problem)


def disk_problem(directory: Path) -> str:
    """Why no more should be written to this directory; empty if there is space."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent  # the first file creates it
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be used: {error.strerror}."
    if free >= MIN_FREE_BYTES:
        return ""
    return f"{DISK_FULL}: only {free / 1e6:.0f} MB are free at {directory}."
