"""The database's clock. Every time that is stored, or compared with a stored one, is its time."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from usher.telemetry import CLOCK_SKEW, Log

log = Log("db")
SAMPLE_SECONDS: Final = 5.0  # between two samples
SLOW_SAMPLE_SECONDS: Final = 1.0  # a sample may be wrong by half of it
SKEW_LIMIT: Final = timedelta(seconds=5)
# Time since boot, which continues while a machine is suspended.
BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return seconds on a clock that the operator cannot set."""
    return time.clock_gettime(BOOT_CLOCK)


async def server_time(conn: psycopg.AsyncConnection[TupleRow]) -> datetime:
    """Ask the database for its time."""
    cursor = await conn.execute("select clock_timestamp()")
    [(now,)] = await cursor.fetchall()
    return now if isinstance(now, datetime) else datetime.fromisoformat(str(now))


def describe_skew(seconds: float) -> str:
    """Return a skew as text, such as `3.0 s ahead of`."""
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


class DatabaseClock:
    """Extrapolates the database's time from the last sample; before the first it is this machine's time."""

    def __init__(self) -> None:
        self._sampled_at = elapsed()
        self._sample = datetime.now(UTC)
        self._has_sample = False
        self._is_skewed = False

    def now(self) -> datetime:
        return self._sample + timedelta(seconds=elapsed() - self._sampled_at)

    @property
    def is_stale(self) -> bool:
        return not self._has_sample or elapsed() - self._sampled_at > SAMPLE_SECONDS

    @property
    def skew(self) -> timedelta:
        """How far this machine's clock is ahead of the database's; negative if it is behind."""
        return datetime.now(UTC) - self.now()

    async def sync(self, conn: psycopg.AsyncConnection[TupleRow]) -> None:
        """Take a sample. The database read its clock at some time between question and answer.

        A sample corrects the clock only if it proves it wrong, and as little as needed; else the clock would jump back
        and forth by half of each slow answer. A slow first sample serves only until the first quick one.
        """
        asked_at = elapsed()
        sample = await server_time(conn)
        answered_at = elapsed()
        uncertain = timedelta(seconds=answered_at - asked_at)
        is_slow = uncertain.total_seconds() > SLOW_SAMPLE_SECONDS
        if self._has_sample and is_slow:
            return
        now = sample + uncertain / 2
        if self._has_sample:
            before = self._sample + timedelta(seconds=answered_at - self._sampled_at)
            now = min(max(before, sample), sample + uncertain)
        self._sample, self._sampled_at, self._has_sample = now, answered_at, not is_slow
        self._report()

    def _report(self) -> None:
        """Set the metric, and log once when the skew begins to exceed the limit."""
        skew = self.skew
        CLOCK_SKEW.set(skew.total_seconds())
        was_skewed, self._is_skewed = self._is_skewed, abs(skew) > SKEW_LIMIT
        if self._is_skewed and not was_skewed:
            seconds = round(skew.total_seconds(), 1)
            log.warning("clock_skew", seconds=seconds, hint="Run NTP on this machine.")
