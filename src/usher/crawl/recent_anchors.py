"""The anchor texts that a crawler reported in the last minutes, because most pages of a site repeat its menus."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from usher.anchor_text import MAX_PAGES_PER_ANCHOR, Anchor

MAX_ANCHORS: Final = 400_000  # in one generation
MAX_AGE_SECONDS: Final = 300.0


class RecentAnchors:
    """How many pages of a host were reported for each anchor; two generations make expiry cheap."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._since = clock()

    def forget(self) -> None:
        """Forget all anchors: the database that received them may be lost."""
        self._young, self._old = {}, {}

    def take(self, origin: str, anchors: Iterable[Anchor]) -> list[Anchor]:
        """Return the anchors of a page that were reported for fewer pages of its host than MGMT counts."""
        if len(self._young) > MAX_ANCHORS or self._clock() - self._since > MAX_AGE_SECONDS:
            self._old, self._young, self._since = self._young, {}, self._clock()
        fresh = []
        for anchor in anchors:
            key = hash((origin, anchor))
            count = self._young.get(key) or self._old.get(key, 0)
            if count < MAX_PAGES_PER_ANCHOR:
                self._young[key] = count + 1
                fresh.append(anchor)
        return fresh
