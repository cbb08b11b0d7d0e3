"""The health of a component: MGMT gets its state when it changes, and the watchdog asks for it."""

import shutil
import time
from pathlib import Path
from typing import Final

from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.components import ComponentState
from usher.telemetry import Log

log = Log("index")
MIN_FREE_BYTES: Final = 50_000_000  # with less free space a component takes no new work
REPORT_SECONDS: Final = 10.0  # between reports of a problem whose reason changes
MAX_REASON_LENGTH: Final = 1_000
# The starts of the reasons why a component waits; `usher status` and `usher crawl` look for them.
DISK_FULL: Final = "Disk full"
STORE_PROBLEM: Final = "Object store"


class ComponentHealth:
    """The component's problem in words; empty while there is none."""

    def __init__(self, problem_state: ComponentState = "error") -> None:
        self.problem = ""
        self._problem_state = problem_state
        self._reported_state: ComponentState = "online"
        self._reported_problem = ""
        self._reported_notice = ""
        self._next_report = 0.0  # of the same problem in other words

    def health(self) -> str:
        return "error" if self.problem else "healthy"

    async def set_problem(self, mgmt: Client, problem: str, *, keeps_chunks: bool = False) -> None:
        """Set or clear the problem; report a change to MGMT until it knows, another reason a little later.

        A component that `keeps_chunks` declares that it waits, because MGMT ends the leases of one in error.
        """
        self.problem = problem
        state: ComponentState = "online"
        if problem:
            state = "waiting" if keeps_chunks else self._problem_state
        is_known = state == self._reported_state
        if is_known and (problem == self._reported_problem or time.monotonic() < self._next_report):
            return
        log.warning("unfit" if problem else "fit_again", trouble=problem)
        try:
            await mgmt.set_state(state, reason=problem[:MAX_REASON_LENGTH])
        except UsherError as error:
            log.warning("state_not_heard", error=str(error))
            return
        self._reported_state, self._reported_problem, self._reported_notice = state, problem, ""
        self._next_report = time.monotonic() + REPORT_SECONDS

    async def set_notice(self, mgmt: Client, notice: str) -> None:
        """Report why some work waits although the component is healthy; empty if nothing waits."""
        if bool(notice) == bool(self._reported_notice) or self._reported_state != "online":
            return
        try:
            await mgmt.set_state("online", reason=notice[:MAX_REASON_LENGTH])
        except UsherError as error:
            log.warning("state_not_heard", error=str(error))
            return
        self._reported_notice = notice


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
