"""Who is calling: a token if there is one, else the host that is declared, else the address it comes from.

Comes from requests; goes to components and tokens, which are remembered for a moment: most calls of a component cost no
statement for this, and its sign of life is written once in that moment.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from usher.db import Connection, Database
from usher.errors import NotAllowed
from usher.mgmt import components, tokens
from usher.mgmt.components import Component
from usher.mgmt.names import Type, type_of
from usher.mgmt.tokens import Token

MOMENT: Final = 2.0  # seconds; a token that is revoked is good for no longer
MOST: Final = 10_000  # remembered of each
# As the first documents spell them, too.
OLD_TYPES: Final = {"index builider": "index-builder", "back-end": "front-end"}
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Asker:
    """What a request says about who sends it."""

    peer: str
    declared: str = ""
    token: Token | None = None


class Memory(Generic[Key, Value]):
    """Values that are good for a moment; of too many all are forgotten."""

    def __init__(
        self, seconds: float = MOMENT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key) -> Value | None:
        until, value = self._kept.get(key, (0.0, None))
        return value if value is not None and self._clock() < until else None

    def put(self, key: Key, value: Value) -> None:
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[key] = (self._clock() + self._seconds, value)

    def forget(self, key: Key) -> None:
        self._kept.pop(key, None)


class Callers:
    """One for each process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tokens = Memory[bytes, Token]()
        self._components = Memory[tuple[str, int | None], Component]()

    async def token(self, secret: str) -> Token | None:
        """The token with that secret, unless it was revoked."""
        key = tokens.digest(secret)
        if found := self._tokens.get(key):
            return found
        async with self._db.connection() as conn:
            found = await tokens.check(conn, secret, now=datetime.now(UTC))
        if found:
            self._tokens.put(key, found)
        return found

    async def meet(
        self, asker: Asker, host: str | None, kind: str | None, *, row: int | None = None
    ) -> Component:
        """The component that calls, registered if it is new; `kind` is what the call makes it."""
        wanted = kind_of(asker.token, kind)
        key = (host or asker.declared or f" {asker.peer}", asker.token.id if asker.token else None)
        kept = self._components.get(key)
        if kept and row is None and wanted in (None, kept.type) and kept.state != "paused":
            return kept
        async with self._db.connection() as conn:
            found = await components.meet(
                conn,
                host=host or asker.declared or await host_of(conn, asker),
                type=wanted,
                row=row,
                token_id=key[1],
                now=datetime.now(UTC),
            )
        self._components.put(key, found)
        return found

    def changed(self, asker: Asker, host: str | None) -> None:
        """What is remembered of a component is not so any more."""
        token = asker.token.id if asker.token else None
        self._components.forget((host or asker.declared or f" {asker.peer}", token))


async def host_of(conn: Connection, asker: Asker) -> str:
    """Of one that says nothing of itself: where its token is at home, or the address it comes from."""
    known = await components.of_token(conn, asker.token.id) if asker.token else None
    return known.host if known else asker.peer


def kind_of(token: Token | None, kind: str | None) -> Type | None:
    """What the caller is by this call or by its token, which must agree."""
    wanted = None if kind is None else type_of(OLD_TYPES.get(kind.lower(), kind))
    if token is None or token.type is None:
        return wanted
    if wanted not in (None, token.type):
        raise NotAllowed(
            f"The token {token.name!r} is for components of type {token.type}, not {wanted}.",
            hint=f"usher tokens add --scope work --type {wanted}",
        )
    return token.type
