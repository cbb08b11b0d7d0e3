"""What the door was just told: the same links stand on page after page, and need not knock each time.

Comes from the pages of a crawl; goes nowhere. A link is forgotten after some minutes or some hundred thousand others.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

MAX_LINKS: Final = 400_000
MAX_AGE_SECONDS: Final = 300.0  # seconds
FAR: Final = 1 << 30


class RecentLinks:
    """Links by where they were found, each with its shortest way; in two generations, so that forgetting is cheap."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._since = clock()

    def forget(self) -> None:
        """Forget all links: the database that was told of them may be lost."""
        self._young, self._old = {}, {}

    def fresh(self, where: str, depth: int, links: Iterable[str]) -> list[str]:
        """Those that were not told yet, or as farther away than this."""
        young, old = self._young, self._old
        return [
            link
            for link in links
            if depth < young.get(key := hash((where, link)), FAR) and depth < old.get(key, FAR)
        ]

    def remember(self, where: str, depth: int, links: Iterable[str]) -> None:
        if len(self._young) > MAX_LINKS or self._clock() - self._since > MAX_AGE_SECONDS:
            self._old, self._young, self._since = self._young, {}, self._clock()
        for link in links:
            key = hash((where, link))
            self._young[key] = min(depth, self._young.get(key, FAR))
