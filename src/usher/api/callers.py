"""Who calls MGMT: the token it shows, and the component it is.

Tokens and components are remembered for a moment, so most calls of a component cost no statement for this. Once in that
moment its sign of life is written, and renews the leases that it does not renew itself. A caller that shows bad tokens
again and again is held off.
"""

import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Generic, TypeVar

from usher import local_secret
from usher.db.pool import Connection, Database
from usher.errors import NotAllowed
from usher.http.server.middleware import HttpError, unauthorized
from usher.mgmt import caller_identity, chunks, tokens
from usher.mgmt.caller_identity import CallerIdentity
from usher.mgmt.component_names import IDENTITY_HINT, ComponentType, host_of, type_of
from usher.mgmt.components import ComponentRecord
from usher.mgmt.tokens import Token, local_token

TOKEN_SECONDS: Final = 1.0  # a revoked token is good for no longer
COMPONENT_SECONDS: Final = 2.0
MAX_REMEMBERED: Final = 10_000  # of each kind
FAILURE_LIMIT: Final = 30  # bad tokens from one address within the window
FAILURE_WINDOW_SECONDS: Final = 60.0
KNOWN_GOOD_SECONDS: Final = 3600.0
LEASE_HOLDERS: Final = frozenset({"crawler", "index-builder"})
# As the first documents spell them, too.
OLD_TYPES: Final = {"index builider": "index-builder", "back-end": "front-end"}
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about who sends it."""

    peer: str
    declared: str = ""
    token: Token | None = None

    @property
    def token_id(self) -> int | None:
        """The token of a component; operators and components of this machine have none."""
        return self.token.id if self.token and self.token.type else None

    @property
    def is_trusted(self) -> bool:
        """Whether it proved to be the operator, or a component that the operator started here."""
        return self.token is not None and self.token.type is None


class TtlStore(Generic[Key, Value]):
    """Values that are good for a moment; when there are too many, all are forgotten."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key) -> Value | None:
        until, value = self._kept.get(key, (0.0, None))
        return value if value is not None and self._clock() < until else None

    def put(self, key: Key, value: Value) -> None:
        if len(self._kept) >= MAX_REMEMBERED:
            self._kept.clear()
        self._kept[key] = (self._clock() + self._seconds, value)

    def forget(self, key: Key) -> None:
        self._kept.pop(key, None)

    def forget_all(self, matches: Callable[[Key], bool]) -> None:
        self._kept = {key: kept for key, kept in self._kept.items() if not matches(key)}


class FailureLimit:
    """Counts bad tokens by the address they come from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def check(self, peer: str) -> None:
        """Raise 429 if this address has shown too many bad tokens within the window."""
        until, count = self._counts.get(peer, (0.0, 0))
        seconds = until - self._clock()
        if count >= FAILURE_LIMIT and seconds > 0:
            raise HttpError(
                429,
                "too_many_failures",
                f"{count} bad tokens came from {peer} within a minute.",
                hint="Wait, and check the token.",
                headers={"Retry-After": str(int(seconds) + 1)},
            )

    def add(self, peer: str) -> None:
        if len(self._counts) >= MAX_REMEMBERED:
            self._counts.clear()
        now = self._clock()
        until, count = self._counts.get(peer, (0.0, 0))
        self._counts[peer] = (
            (until, count + 1) if now < until else (now + FAILURE_WINDOW_SECONDS, 1)
        )


class Callers:
    """One for each process; `secret` is the data directory's, or empty where there is none."""

    def __init__(
        self, db: Database, secret: str = "", *, lease: timedelta = timedelta(minutes=5)
    ) -> None:
        self._db = db
        self._lease = lease
        # A lease is renewed several times before it ends.
        self._component_seconds = min(COMPONENT_SECONDS, lease.total_seconds() / 4)
        self._tokens = TtlStore[bytes, Token](TOKEN_SECONDS)
        self._known_good = TtlStore[bytes, bool](KNOWN_GOOD_SECONDS)
        self._components = TtlStore[CallerIdentity, ComponentRecord](self._component_seconds)
        self._failures = FailureLimit()
        now = db.clock.now()
        self._local: dict[str, Token] = {}
        if secret:
            component = local_secret.component_secret(secret)
            self._local[secret] = local_token("secret of the data directory", "admin", now)
            self._local[component] = local_token("component of this machine", "work", now)

    async def token(self, secret: str, peer: str = "") -> Token:
        """The good token with that secret; raises 401, or 429 for an address that shows many bad ones."""
        for known, token in self._local.items():
            if hmac.compare_digest(known.encode(), secret.encode("utf-8", "replace")):
                return token
        key = tokens.digest(secret)
        now = self._db.clock.now()
        if (kept := self._tokens.get(key)) and kept.is_good(now):
            return kept
        if not self._known_good.get(key):
            self._failures.check(peer)
        async with self._db.connection() as conn:
            checked = await tokens.check(conn, secret, now=now)
        if checked is None:
            self._failures.add(peer)
            self._known_good.forget(key)
            raise unauthorized("This token is not known, has expired or was revoked.")
        self._tokens.put(key, checked)
        self._known_good.put(key, value=True)
        return checked

    async def meet(
        self,
        asker: Caller,
        host: str | None,
        roles: Sequence[ComponentType] = (),
        *,
        row: int | None = None,
    ) -> ComponentRecord:
        """The component that calls, registered if it is new; `roles` are those that the call implies."""
        caller = identity_of(asker, host, roles)
        kept = self._components.get(caller)
        if kept and row is None and kept.state != "paused":
            return kept
        async with self._db.connection() as conn:
            if asker.token_id and asker.token and asker.token.address is None:
                bound = await tokens.bind_once(conn, asker.token_id, caller.host)
                bound_asker = replace(asker, token=replace(asker.token, address=bound))
                caller = identity_of(bound_asker, host, roles)
            met = await caller_identity.identify(conn, caller, row=row, now=self._db.clock.now())
            await self._renew(conn, met)
        self._components.put(caller, met)
        return met

    async def note(self, asker: Caller, host: str | None, roles: Sequence[ComponentType]) -> None:
        """Write the sign of life of a caller whose host has components; a caller from elsewhere stays unknown."""
        declared = host or asker.declared
        if asker.token and (asker.token.scope == "read" or (asker.is_trusted and not declared)):
            return
        caller = identity_of(asker, host, () if declared else roles)
        if self._components.get(caller):
            return
        async with self._db.connection() as conn:
            if not await caller_identity.has_components(conn, caller.host):
                return
            now = self._db.clock.now()
            known = await caller_identity.recognise(conn, caller, now=now)
            if not caller.is_named:
                known = await caller_identity.identify(conn, caller, now=now)
            if known:
                await self._renew(conn, known)
                self._components.put(caller, known)

    async def _renew(self, conn: Connection, component: ComponentRecord) -> None:
        """A call is a sign of life for the chunks of a component that does not name them to POST /v1/lease."""
        if component.type in LEASE_HOLDERS and not component.renews_leases:
            now = self._db.clock.now()
            await chunks.renew_by_call(conn, component.id, lease=self._lease, now=now)

    def forget_all(self) -> None:
        """Forget all tokens and components, because the database has another history."""
        self._tokens = TtlStore(TOKEN_SECONDS)
        self._components = TtlStore(self._component_seconds)

    def changed(self, asker: Caller, host: str | None) -> None:
        """Forget what is remembered of the components of a host, because one of them changes."""
        name = address_of(asker, host)
        self._components.forget_all(lambda caller: caller.host == name)


def is_named(asker: Caller, host: str | None) -> bool:
    """Whether the caller says which host it is, or has a token that does."""
    return bool(host or asker.declared or asker.token_id)


def identity_of(asker: Caller, host: str | None, roles: Sequence[ComponentType]) -> CallerIdentity:
    """Who calls: a component with a token has its role from there."""
    return CallerIdentity(
        address_of(asker, host),
        roles_of(asker.token, roles),
        is_named=is_named(asker, host),
        token_id=asker.token_id,
        is_trusted=asker.is_trusted,
    )


def address_of(asker: Caller, host: str | None) -> str:
    """The host of the calling component: that of its token, else what it declares, else where it calls from."""
    declared = host or asker.declared
    bound = asker.token.address if asker.token else None
    if bound is None:
        return host_of(declared or asker.peer)
    if declared and host_of(declared) != bound:
        raise wrong_address(asker.token, bound, host_of(declared))
    return bound


def wrong_address(token: Token | None, bound: str, declared: str) -> NotAllowed:
    name = token.name if token else ""
    return NotAllowed(
        f"The token {name!r} belongs to {bound}, not to {declared}.",
        hint=f"Only the operator can change this: usher tokens move {name} {declared}. {IDENTITY_HINT}",
    )


def role_named(text: str) -> ComponentType:
    """A type as callers write it, also as the first documents spell it."""
    return type_of(OLD_TYPES.get(text.lower(), text))


def roles_of(token: Token | None, roles: Sequence[ComponentType]) -> tuple[ComponentType, ...]:
    """The roles that the call implies, or the one of its token, which must be among them."""
    if token is None or token.type is None:
        return tuple(roles)
    if roles and token.type not in roles:
        raise NotAllowed(
            f"The token {token.name!r} is for components of type {token.type}, not {roles[0]}.",
            hint=f"usher tokens add --type {roles[0]}",
        )
    return (token.type,)
