"""Identifies the callers of MGMT: the token that a caller shows, and the component that it is.

Tokens and components are cached for a moment, so most calls of a component need no statement for this. Once in that
time the sign of life is written; it renews the leases that the component does not renew itself. An address that shows
many bad tokens gets 429.
"""

import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from usher import local_secret
from usher.db.pool import Connection, Database
from usher.errors import NotAllowed
from usher.http.server.middleware import HttpError, unauthorized
from usher.messages.components import EngineName
from usher.mgmt import caller_identity, chunks, console_sessions, tokens
from usher.mgmt.caller_identity import CallerIdentity
from usher.mgmt.component_names import IDENTITY_HINT, ComponentType, host_of, type_of
from usher.mgmt.components import ComponentRecord
from usher.mgmt.tokens import Token, local_token
from usher.ttl_cache import TtlCache

TOKEN_SECONDS: Final = 1.0  # a revoked token is good for no longer
COMPONENT_SECONDS: Final = 2.0
MAX_CACHE_ENTRIES: Final = 10_000  # of each kind
FAILURE_LIMIT: Final = 30  # bad tokens from one address within the window
FAILURE_WINDOW_SECONDS: Final = 60.0
KNOWN_GOOD_SECONDS: Final = 3600.0
LEASE_HOLDERS: Final = frozenset({"crawler", "index-builder"})
# The seed documents spell them like this.
SEED_TYPES: Final = {"index builider": "index-builder", "back-end": "front-end"}


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: its address, the host that it declares, its token, and the secret of its session."""

    peer: str
    declared: str = ""
    token: Token | None = None
    session: str = ""

    @property
    def token_id(self) -> int | None:
        """The id of a component's token; operators and components of this machine have none."""
        return self.token.id if self.token and self.token.type else None

    @property
    def is_trusted(self) -> bool:
        """Whether it is the operator, or a component that the operator started on this machine."""
        return self.token is not None and self.token.type is None


class FailureLimit:
    """Counts bad tokens by the address they come from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def check(self, peer: str) -> None:
        """Raise 429 if this address showed too many bad tokens within the window."""
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
        if len(self._counts) >= MAX_CACHE_ENTRIES:
            self._counts.clear()
        now = self._clock()
        until, count = self._counts.get(peer, (0.0, 0))
        self._counts[peer] = (
            (until, count + 1) if now < until else (now + FAILURE_WINDOW_SECONDS, 1)
        )


class Callers:
    """One for each process; `secret` is the data directory's, or empty."""

    def __init__(
        self, db: Database, secret: str = "", *, lease: timedelta = timedelta(minutes=5)
    ) -> None:
        self._db = db
        self._lease = lease
        # Renew a lease several times before it ends.
        self._component_seconds = min(COMPONENT_SECONDS, lease.total_seconds() / 4)
        self._known_good = TtlCache[bytes, bool](KNOWN_GOOD_SECONDS, MAX_CACHE_ENTRIES)
        self.forget_all()
        self._failures = FailureLimit()
        now = db.clock.now()
        self._local: dict[str, Token] = {}
        if secret:
            component = local_secret.component_secret(secret)
            self._local[secret] = local_token("secret of the data directory", "admin", now)
            self._local[component] = local_token("component of this machine", "work", now)

    async def token(self, secret: str, peer: str = "") -> Token:
        """The valid token with that secret; raises 401, or 429 for an address that shows many bad ones."""
        for local, token in self._local.items():
            if hmac.compare_digest(local.encode(), secret.encode("utf-8", "replace")):
                return token
        key = tokens.digest(secret)
        now = self._db.clock.now()
        if (cached := self._tokens.get(key)) and cached.is_good(now):
            return cached
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

    async def session(self, secret: str) -> Token | None:
        """The token behind a session of the console; None if it has ended."""
        key, now = tokens.digest(secret), self._db.clock.now()
        if (cached := self._sessions.get(key)) and cached.is_good(now):
            return cached
        async with self._db.connection() as conn:
            token = await console_sessions.check_session(conn, secret, now=now)
        if token:
            self._sessions.put(key, token)
        return token

    def forget_session(self, secret: str) -> None:
        self._sessions.forget(tokens.digest(secret))

    async def component(
        self,
        caller: Caller,
        host: str | None,
        roles: Sequence[ComponentType] = (),
        *,
        row: int | None = None,
        engine: EngineName | None = None,
    ) -> ComponentRecord:
        """The component that calls, registered if it is new; `roles` are those that the endpoint serves."""
        identity = identity_of(caller, host, roles)
        cached = self._components.get(identity)
        if cached and row is None and engine is None and cached.state != "paused":
            return cached
        async with self._db.connection() as conn:
            if caller.token_id and caller.token and caller.token.address is None:
                bound = await tokens.bind_once(conn, caller.token_id, identity.host)
                bound_caller = replace(caller, token=replace(caller.token, address=bound))
                identity = identity_of(bound_caller, host, roles)
            component = await caller_identity.identify(
                conn, identity, row=row, engine=engine, now=self._db.clock.now()
            )
            await self._renew(conn, component)
        self._components.put(identity, component)
        return component

    async def record_sign_of_life(
        self, caller: Caller, host: str | None, roles: Sequence[ComponentType]
    ) -> None:
        """Write the sign of life of a caller whose host has components; other callers are not registered."""
        declared = host or caller.declared
        if caller.token and (caller.token.scope == "read" or (caller.is_trusted and not declared)):
            return
        identity = identity_of(caller, host, () if declared else roles)
        if self._components.get(identity):
            return
        async with self._db.connection() as conn:
            if not await caller_identity.has_components(conn, identity.host):
                return
            now = self._db.clock.now()
            component = await caller_identity.recognise(conn, identity, now=now)
            if not identity.is_named:
                component = await caller_identity.identify(conn, identity, now=now)
            if component:
                await self._renew(conn, component)
                self._components.put(identity, component)

    async def _renew(self, conn: Connection, component: ComponentRecord) -> None:
        """Renew all leases of a component that does not call POST /v1/lease."""
        if component.type in LEASE_HOLDERS and not component.renews_leases:
            now = self._db.clock.now()
            await chunks.renew_by_call(conn, component.id, lease=self._lease, now=now)

    def forget_all(self) -> None:
        """Empty the caches, because the database has another history."""
        self._tokens = TtlCache[bytes, Token](TOKEN_SECONDS, MAX_CACHE_ENTRIES)
        self._sessions = TtlCache[bytes, Token](TOKEN_SECONDS, MAX_CACHE_ENTRIES)
        self._components = TtlCache[CallerIdentity, ComponentRecord](
            self._component_seconds, MAX_CACHE_ENTRIES
        )

    def forget_host(self, caller: Caller, host: str | None) -> None:
        """Drop the components of a host from the cache, because one of them changes."""
        name = address_of(caller, host)
        self._components.forget_all(lambda identity: identity.host == name)


def is_named(caller: Caller, host: str | None) -> bool:
    """Whether the caller declares its host, or has a token that is bound to one."""
    return bool(host or caller.declared or caller.token_id)


def identity_of(caller: Caller, host: str | None, roles: Sequence[ComponentType]) -> CallerIdentity:
    """The identity of the caller; a token of a component determines its role."""
    return CallerIdentity(
        address_of(caller, host),
        roles_of(caller.token, roles),
        is_named=is_named(caller, host),
        token_id=caller.token_id,
        is_trusted=caller.is_trusted,
    )


def address_of(caller: Caller, host: str | None) -> str:
    """The host of the calling component: that of its token, else the declared one, else its address."""
    declared = host or caller.declared
    bound = caller.token.address if caller.token else None
    if bound is None:
        return host_of(declared or caller.peer)
    if declared and host_of(declared) != bound:
        raise wrong_address(caller.token, bound, host_of(declared))
    return bound


def wrong_address(token: Token | None, bound: str, declared: str) -> NotAllowed:
    name = token.name if token else ""
    return NotAllowed(
        f"The token {name!r} belongs to {bound}, not to {declared}.",
        hint=f"Only the operator can change this: usher tokens move {name} {declared}. {IDENTITY_HINT}",
    )


def role_named(text: str) -> ComponentType:
    """The type that a caller names, also in the spelling of the seed documents."""
    return type_of(SEED_TYPES.get(text.lower(), text))


def roles_of(token: Token | None, roles: Sequence[ComponentType]) -> tuple[ComponentType, ...]:
    """The roles that the endpoint serves, or that of the token, which must be among them."""
    if token is None or token.type is None:
        return tuple(roles)
    if roles and token.type not in roles:
        raise NotAllowed(
            f"The token {token.name!r} is for components of type {token.type}, not {roles[0]}.",
            hint=f"usher tokens add --type {roles[0]}",
        )
    return (token.type,)
