"""Tokens: proof of who is calling MGMT.

Operators create them. Usher keeps only a hash of each secret in work.token. A token has a scope: `read` looks, `admin`
may do everything, and `work` is for one component of one type at one address.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal, get_args

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, Conflict, NotFound
from usher.mgmt.component_names import ComponentType, host_of, type_of

store = load_statements(__file__)
Scope = Literal["read", "work", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
SECRET_BYTES: Final = 32
MAX_SECRET: Final = 200
MAX_NAME: Final = 100
MAX_LIFETIME: Final = timedelta(days=36_500)
HINT: Final = "usher tokens list"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret.

    `type` and `address` name the component that may use it. Credentials of this machine are no rows: their id is 0.
    """

    id: int
    name: str
    scope: Scope
    type: ComponentType | None
    address: str | None
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None

    @property
    def is_local(self) -> bool:
        """Whether the data directory's secret stands behind it, and no row."""
        return self.id == 0

    def is_good(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class TicketState:
    """What tickets depend on: the key, the database's time in seconds, the tokens whose tickets are refused."""

    key: bytes
    now: float
    revoked: list[int]


def local_token(name: str, scope: Scope, now: datetime) -> Token:
    """What a caller is who proved that it can read this machine's data directory."""
    return Token(0, name, scope, None, None, now, None, now, None)


async def make(
    conn: Connection,
    name: str,
    scope: str,
    type: str | None = None,  # noqa: A002 - the name of the column, as the callers have it
    *,
    address: str | None = None,
    lifetime: timedelta | None = None,
    now: datetime,
) -> str:
    """A new token's secret, which is stored nowhere."""
    if not name.isprintable() or not 1 <= len(name.strip()) <= len(name) <= MAX_NAME:
        raise BadInput(
            f"A token's name has 1 to {MAX_NAME} characters that can be printed.",
            hint="usher tokens add crawler-7",
        )
    kind = None if type is None else type_of(type)
    check_role(scope, kind, address)
    if lifetime is not None and not timedelta() < lifetime <= MAX_LIFETIME:
        raise BadInput("A token expires within 1 second to 100 years.", hint="--expires 90d")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    made = await store.add.tuples(
        conn,
        name=name,
        hash=digest(secret),
        scope=scope,
        type=kind,
        address=None if address is None else host_of(address),
        lifetime=lifetime,
        now=now,
    )
    if not made:
        raise Conflict(f"There is, or was, a token {name!r}.", hint="Give it another name.")
    return secret


def check_role(scope: str, kind: ComponentType | None, address: str | None) -> None:
    """Raise BadInput unless scope, type and address describe one role."""
    if scope not in SCOPES:
        raise BadInput(f"{scope[:40]!a} is no scope.", hint=f"One of {', '.join(SCOPES)}.")
    if scope == "work" and kind is None:
        raise BadInput(
            "A token for a component needs the component's type.",
            hint="usher tokens add --type crawler; or --scope read, or --scope admin.",
        )
    if scope != "work" and (kind or address):
        raise BadInput(
            f"A token with the scope {scope} belongs to no component.",
            hint="Leave out --type and --address, or leave out --scope.",
        )
    if kind == "manager" and address is None:
        raise BadInput(
            "A manager's token needs the name of its machine: it decides which jobs it may claim.",
            hint="usher tokens add --type manager --address worker-1",
        )


async def check(conn: Connection, secret: str, *, now: datetime) -> Token | None:
    """The token with that secret, unless it was revoked or has expired."""
    if not secret or len(secret) > MAX_SECRET:
        return None
    return await store.check.row(conn, Token, hash=digest(secret), now=now)


def digest(secret: str) -> bytes:
    # The secret holds 256 random bits: a slow hash, made for passwords, would protect nothing more.
    return sha256(secret.encode("utf-8", "replace")).digest()


async def list_tokens(
    conn: Connection,
    *,
    contains: str | None = None,
    scope: Scope | None = None,
    after: str = "",
    n: int | None = None,
) -> list[Token]:
    """Tokens by name after this one; `contains` is a part of the name, type or address."""
    return await store.list_tokens.rows(
        conn, Token, contains=contains, scope=scope, after=after, n=n
    )


async def revoke(conn: Connection, name: str, *, now: datetime) -> bool:
    """Make a token good for nothing; False if it was so already."""
    if await store.revoke.tuples(conn, name=name, now=now):
        return True
    if not await store.known.tuples(conn, name=name):
        raise NotFound(f"There is no token {name[:MAX_NAME]!r}.", hint=HINT)
    return False


async def any_good(conn: Connection) -> bool:
    """Whether there is a token that lets a caller in."""
    return bool(await store.any_good.value(conn))


async def bind_once(conn: Connection, id_: int, address: str) -> str:
    """Give a token this address if it has none; returns the address that counts."""
    return str(await store.bind_once.value(conn, id=id_, address=address))


async def move(conn: Connection, name: str, address: str) -> str:
    """Give a token another address, as only the operator may; returns the address as it is stored."""
    host = host_of(address)
    if not await store.move.tuples(conn, name=name, address=host):
        raise NotFound(f"There is no good token {name[:MAX_NAME]!r}.", hint=HINT)
    return host


async def ticket_state(conn: Connection) -> TicketState:
    [(key, now, revoked)] = await store.ticket_state.tuples(conn)
    return TicketState(bytes(key), float(now), list(revoked))
