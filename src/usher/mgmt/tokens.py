"""Tokens: proof of who is calling, for all who come from another machine.

Comes from operators, who hand each secret to a component; goes to work.token, which knows only hashes.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, get_args

from usher.db import Connection
from usher.errors import BadInput, Conflict, NotFound
from usher.mgmt.names import Type, type_of
from usher.statements import beside

store = beside(__file__)
Scope = Literal["read", "work", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)  # each may do what those before it may
SECRET_BYTES: Final = 32
MAX_SECRET: Final = 200
MAX_NAME: Final = 100
HINT: Final = "usher tokens list"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret; `type` if it is for components of that type alone."""

    id: int
    name: str
    scope: Scope
    type: Type | None
    created_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None

    def may(self, scope: Scope) -> bool:
        """Whether it is good for that, or for more."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


async def make(
    conn: Connection,
    name: str,
    scope: str,
    type: str | None = None,  # noqa: A002 - the name of the column, as the callers have it
    *,
    now: datetime,
) -> str:
    """A new token's secret, which is nowhere to be found again."""
    if not name.isprintable() or not 1 <= len(name.strip()) <= len(name) <= MAX_NAME:
        raise BadInput(
            f"A token's name has 1 to {MAX_NAME} characters that can be printed.",
            hint="usher tokens add crawler-7",
        )
    if scope not in SCOPES:
        raise BadInput(f"{scope[:40]!a} is no scope.", hint=f"One of {', '.join(SCOPES)}.")
    kind = None if type is None else type_of(type)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    made = await store.add.tuples(
        conn, name=name, hash=digest(secret), scope=scope, type=kind, now=now
    )
    if not made:
        raise Conflict(f"There is, or was, a token {name!r}.", hint="Give it another name.")
    return secret


async def check(conn: Connection, secret: str, *, now: datetime) -> Token | None:
    """The token with that secret, unless it was revoked."""
    if not secret or len(secret) > MAX_SECRET:
        return None
    return await store.check.row(conn, Token, hash=digest(secret), now=now)


def digest(secret: str) -> bytes:
    # The secret is 256 bits of chance: a slow hash, made for passwords, would protect nothing more.
    return sha256(secret.encode("utf-8", "replace")).digest()


async def list_tokens(conn: Connection) -> list[Token]:
    return await store.list_tokens.rows(conn, Token)


async def revoke(conn: Connection, name: str, *, now: datetime) -> bool:
    """Make a token good for nothing; False if it was so already."""
    if await store.revoke.tuples(conn, name=name, now=now):
        return True
    if not await store.known.tuples(conn, name=name):
        raise NotFound(f"There is no token {name[:MAX_NAME]!r}.", hint=HINT)
    return False


async def any_good(conn: Connection) -> bool:
    """Whether there is a token that is not revoked."""
    [(answer,)] = await store.any_good.tuples(conn)
    return bool(answer)
