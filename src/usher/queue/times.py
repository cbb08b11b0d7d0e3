"""Bounds of the times that users may give."""

from datetime import UTC, datetime
from typing import Final

from usher.errors import BadInput

# A timestamp of PostgreSQL and Python can hold these in every time zone.
MIN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)


def checked_time(time: datetime | None) -> datetime | None:
    """Return the same time; BadInput if it is out of bounds."""
    if time is not None and not MIN_TIME <= time < MAX_TIME:
        raise BadInput(f"A time is from {MIN_TIME.year} up to {MAX_TIME.year}.")
    return time
