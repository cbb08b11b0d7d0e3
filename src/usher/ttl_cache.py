"""A cache with a time to live and a maximum size."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
MAX_ENTRIES: Final = 1_000


class TtlCache(Generic[Key, Value]):
    """Values that expire after some seconds; a full cache drops the oldest."""

    def __init__(self, seconds: float, max_entries: int = MAX_ENTRIES) -> None:
        self._seconds, self._max_entries = seconds, max_entries
        self._entries: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key) -> Value | None:
        expires_at, value = self._entries.get(key, (0.0, None))
        return value if time.monotonic() < expires_at else None

    def put(self, key: Key, value: Value) -> None:
        self._entries.pop(key, None)
        while len(self._entries) >= self._max_entries:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (time.monotonic() + self._seconds, value)

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)

    def forget_all(self, matches: Callable[[Key], bool]) -> None:
        self._entries = {key: entry for key, entry in self._entries.items() if not matches(key)}
