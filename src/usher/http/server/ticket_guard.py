"""Verifies the callers of a component that other machines can reach: they need a ticket that MGMT signed for it.

The guard asks MGMT every second for its key, MGMT's time and the revoked tokens, so a revocation takes effect within
two seconds. While MGMT cannot be reached, the guard's clock stands still: tickets that were valid at the last contact
stay valid for a grace period, except those of tokens that the guard knows to be revoked.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

import msgspec

from usher.background import wait_up_to
from usher.errors import NotAllowed, Unreachable, UsherError
from usher.http.client.pool import mgmt_pool
from usher.http.server.listen import Bind
from usher.http.server.middleware import unauthorized
from usher.messages.components import GuardState
from usher.telemetry import Log
from usher.tickets import Action, Ticket, verify

log = Log("web")
POLL_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 5.0
OUT_OF_TOUCH_SECONDS: Final = 10.0  # without an answer of MGMT; then the clock stands still
DEFAULT_GRACE_SECONDS: Final = 43_200.0
OK_STATUS: Final = 200
TICKET_HINT: Final = "MGMT issues tickets: POST /v1/tickets."


class Guard:
    """Verifies tickets; `run` keeps it up to date."""

    def __init__(
        self,
        mgmt: str,
        token: str,
        *,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, name = mgmt_pool(mgmt, timeout=TIMEOUT_SECONDS)
        self._headers = {"Host": name, "Authorization": f"Bearer {token}"}
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._host = ""
        self._key = b""
        self._revoked: frozenset[int] = frozenset()
        self._mgmt_time = 0.0
        self._refreshed_at: float | None = None
        self._is_refreshed = asyncio.Event()

    async def run(self, host: str) -> None:
        """Ask MGMT every second until cancelled; `host` is the public address of this component."""
        path = f"/v1/guard?{urlencode({'host': host})}"
        is_reported = False
        try:
            while True:
                try:
                    await self._refresh(path)
                    is_reported = False
                except UsherError as error:
                    if not is_reported:
                        log.warning("guard_not_refreshed", error=error.message)
                    is_reported = True
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._pool.close()

    async def _refresh(self, path: str) -> None:
        answer = await self._pool.ask("GET", path, b"", self._headers)
        if answer.status != OK_STATUS:
            raise Unreachable(f"MGMT answers {answer.status}: {answer.body[:300]!r}.")
        try:
            self.update(msgspec.json.decode(answer.body, type=GuardState))
        except (msgspec.MsgspecError, ValueError) as error:
            raise Unreachable(f"This is no answer of MGMT: {error}.") from error

    def update(self, state: GuardState) -> None:
        """Use MGMT's answer from now on."""
        self._host, self._key = state.host, bytes.fromhex(state.key)
        self._mgmt_time, self._revoked = state.now, frozenset(state.revoked)
        self._refreshed_at = self._clock()
        self._is_refreshed.set()

    async def check(self, secret: str, action: Action) -> Ticket:
        """The caller's ticket if it permits the action; raises 401, 403, or Unreachable if MGMT never answered."""
        if not secret:
            raise unauthorized("A ticket is needed here.", hint=TICKET_HINT)
        if self._refreshed_at is None:
            await wait_up_to(TIMEOUT_SECONDS, self._is_refreshed)
        now = self._now()
        ticket = verify(secret, self._key, self._host)
        if ticket is None:
            raise unauthorized("This is no ticket for this component.", hint=TICKET_HINT)
        if ticket.expires < now:
            raise unauthorized("This ticket has expired.", hint=TICKET_HINT)
        self.check_again(ticket)
        if action not in ticket.actions:
            raise NotAllowed(
                f"This ticket is for {', '.join(ticket.actions)}, not for {action}.",
                hint=TICKET_HINT,
            )
        return ticket

    def check_again(self, ticket: Ticket) -> None:
        """Raise if the token of a valid ticket was revoked since."""
        if ticket.token_id in self._revoked:
            raise unauthorized("The token behind this ticket was revoked.", hint=TICKET_HINT)

    def _now(self) -> float:
        """The database's time, standing still while MGMT is away; Unreachable after the grace period."""
        if self._refreshed_at is None:
            raise Unreachable("MGMT cannot be reached, so no ticket can be verified.")
        age = self._clock() - self._refreshed_at
        if age > max(self._grace_seconds, OUT_OF_TOUCH_SECONDS):
            raise Unreachable(
                f"MGMT has not been reached for {age:,.0f} seconds, so tickets are no longer valid.",
                hint="See offline_grace in docs/settings.md.",
            )
        return self._mgmt_time + min(age, OUT_OF_TOUCH_SECONDS)


def guard_for(
    bind: Bind, *, mgmt: str, token: str, insecure: bool, grace_seconds: float
) -> Guard | None:
    """The guard, or None where only this machine can call or with --insecure; NotAllowed without a token."""
    if bind.loopback or insecure:
        return None
    if not token or not mgmt:
        raise NotAllowed(
            f"{bind} can be reached from other machines, and this component has no token.",
            hint="Make one with `usher tokens add`, bind to 127.0.0.1, or add --insecure.",
        )
    return Guard(mgmt, token, grace_seconds=grace_seconds)
