"""Times of the run; `CHAOS_SCALE` stretches those that depend on how fast the machine is."""

import os
import time

STARTED = time.monotonic()  # of the run; tables and messages count from here
SCALE = float(os.environ.get("CHAOS_SCALE", "1"))
CHUNK_LEASE_SECONDS = 15
JOB_LEASE_SECONDS = 8
CRAWL_DELAY_SECONDS = 0.3
START_SECONDS = 120 * SCALE
RECOVERY_SECONDS = 120 * SCALE  # until a fault counts as stuck
QUIET_SECONDS = 180 * SCALE
SEARCH_SECONDS = 15 * SCALE
FAULT_SECONDS = (3, 8, 20)  # the last is longer than a lease


def elapsed(at: float | None = None) -> float:
    """Seconds of the run until a time of the monotonic clock, or until now."""
    return (time.monotonic() if at is None else at) - STARTED
