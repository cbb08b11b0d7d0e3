"""Values that are good for a moment, the latest of them."""

import time
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
MOST: Final = 1_000


class TtlCache(Generic[Key, Value]):
    """A small memory; of too many the oldest is forgotten."""

    def __init__(self, seconds: float, most: int = MOST) -> None:
        self._seconds, self._most = seconds, most
        self._kept: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key) -> Value | None:
        until, value = self._kept.get(key, (0.0, None))
        return value if time.monotonic() < until else None

    def put(self, key: Key, value: Value) -> None:
        self._kept.pop(key, None)
        while len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (time.monotonic() + self._seconds, value)
