"""Times that people name, kept within what can be stored. Pure."""

from datetime import UTC, datetime
from typing import Final

from usher.errors import BadInput

# Far from what a timestamp cannot hold in one of the time zones.
MIN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)


def checked_time(time: datetime | None) -> datetime | None:
    """The same time; BadInput if it is none that anybody can mean."""
    if time is not None and not MIN_TIME <= time < MAX_TIME:
        raise BadInput(f"A time is from {MIN_TIME.year} up to {MAX_TIME.year}.")
    return time
