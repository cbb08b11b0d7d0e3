"""The links that a crawler reported to the door in the last minutes, because most pages of a site repeat them."""

import time
from collections.abc import Callable, Iterable
from typing import Final

MAX_LINKS: Final = 400_000  # in one generation
MAX_AGE_SECONDS: Final = 300.0
_NO_DEPTH: Final = 1 << 30  # deeper than any link


class RecentLinks:
    """The smallest reported depth of each link and source; two generations make expiry cheap."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._since = clock()

    def forget(self) -> None:
        """Forget all links: the database that received them may be lost."""
        self._young, self._old = {}, {}

    def fresh(self, source: str, depth: int, links: Iterable[str]) -> list[str]:
        """Return the links that were not reported yet, or only at a greater depth."""
        young, old = self._young, self._old
        return [
            link
            for link in links
            if depth < young.get(key := hash((source, link)), _NO_DEPTH)
            and depth < old.get(key, _NO_DEPTH)
        ]

    def remember(self, source: str, depth: int, links: Iterable[str]) -> None:
        if len(self._young) > MAX_LINKS or self._clock() - self._since > MAX_AGE_SECONDS:
            self._old, self._young, self._since = self._young, {}, self._clock()
        for link in links:
            key = hash((source, link))
            self._young[key] = min(depth, self._young.get(key, _NO_DEPTH))
