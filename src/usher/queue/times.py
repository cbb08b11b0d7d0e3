"""Times that people name, kept within what can be stored. Pure."""

from datetime import UTC, datetime
from typing import Final

from usher.errors import BadInput

# Far from what a timestamp cannot hold in one of the time zones.
FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def in_range(time: datetime | None) -> datetime | None:
    """The same time; BadInput if it is none that anybody can mean."""
    if time is not None and not FIRST <= time < LAST:
        raise BadInput(f"A time is from {FIRST.year} up to {LAST.year}.")
    return time
