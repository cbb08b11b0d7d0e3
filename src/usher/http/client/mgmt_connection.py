"""The connection of one component to MGMT: retries, the declaration of its state, and tickets."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode

import msgspec

from usher import __version__
from usher.errors import Unreachable, UsherError
from usher.http.client.mgmt_responses import decode_answer, to_error
from usher.http.client.pool import HttpResponse, mgmt_pool
from usher.local_secret import COMPONENT_PREFIX
from usher.messages.components import (
    ComponentState,
    ComponentStateRequest,
    ComponentStatus,
    EngineName,
    TicketRequest,
    Tickets,
)
from usher.messages.fields import INCARNATION_HEADER
from usher.telemetry import Log
from usher.versions import version_problem

log = Log("mgmt")
AnswerT = TypeVar("AnswerT")
FIRST_ERROR_STATUS: Final = 400
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 5.0
INCARNATION_HEADER_BYTES: Final = INCARNATION_HEADER.encode()


class MgmtConnection:
    """One component at MGMT; `host` is its public address."""

    def __init__(
        self, url: str, *, host: str = "", token: str = "", timeout: float = 30, patience: float = 0
    ) -> None:
        self._pool, name = mgmt_pool(url, timeout=timeout)
        self._patience = patience
        self._headers = {"Host": name, "Content-Type": "application/json"}
        if host:
            self._headers["X-Usher-Host"] = host
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self.incarnation = ""  # of the database, in MGMT's latest answer
        self._declared: dict[str, Any] = {}  # the state that this component declared
        self._is_declaration_due = False  # a new incarnation does not know the state yet
        self._is_declaring = False
        # Only a component with a token of its own gets tickets; components of one machine need none.
        self._gets_tickets = bool(token) and not token.startswith(COMPONENT_PREFIX)
        self._tickets: dict[str, tuple[float, str]] = {}  # by host: when to renew it, the ticket

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.close()

    async def set_state(
        self,
        state: ComponentState,
        *,
        type: str | None = None,  # noqa: A002 - as MGMT calls it
        row: int | None = None,
        weight: int | None = None,
        engine: EngineName | None = None,
        reason: str = "",
        anew: bool = False,
        renews_leases: bool = False,
    ) -> ComponentStatus:
        """Declare this component's state, and at first its type.

        A crawler that starts `anew` has no chunks. One that `renews_leases` calls `renew` for each of its chunks.
        """
        request = ComponentStateRequest(
            state=state,
            type=type,
            row=row,
            weight=weight,
            engine=engine,
            reason=reason,
            anew=anew,
            version=__version__,
            renews_leases=renews_leases,
        )
        declared = {**msgspec.to_builtins(request), "reason": reason}
        declared.pop("anew", None)
        self._declared |= declared
        status = await self._post("/set_component_state", request, ComponentStatus)
        if type and (problem := version_problem(status.version, __version__)):
            log.warning("version", problem=problem)
        return status

    async def ticket(self, host: str) -> str:
        """A ticket to call the component at that host; empty where none is needed."""
        return (await self.tickets([host])).get(host, "")

    async def tickets(self, hosts: Iterable[str]) -> dict[str, str]:
        """Tickets by host, as far as MGMT issues any; while it cannot be reached, the earlier ones."""
        wanted = list(hosts)
        now = asyncio.get_running_loop().time()
        due = [host for host in wanted if self._tickets.get(host, (0.0, ""))[0] <= now]
        if due and self._gets_tickets:
            try:
                answer = await self._post("/v1/tickets", TicketRequest(hosts=due), Tickets)
            except Unreachable:
                if any(host not in self._tickets for host in due):
                    raise
            else:
                renew_at = now + answer.seconds / 3
                self._tickets |= {host: (renew_at, text) for host, text in answer.tickets.items()}
        return {host: self._tickets[host][1] for host in wanted if host in self._tickets}

    def forget_tickets(self, hosts: Iterable[str]) -> None:
        """Ask MGMT for new tickets for these hosts; the old ones stay in use until it answers."""
        for host in hosts:
            if host in self._tickets:
                self._tickets[host] = (0.0, self._tickets[host][1])

    async def _get(self, path: str, of: type[AnswerT], query: msgspec.Struct) -> AnswerT:
        values = msgspec.to_builtins(query)
        text = urlencode(
            {name: int(value) if value is True else value for name, value in values.items()}
        )
        return decode_answer(await self._call("GET", f"{path}?{text}"), of)

    async def _post(
        self,
        path: str,
        request: msgspec.Struct | Mapping[str, Any],
        of: type[AnswerT],
        headers: Mapping[str, str] | None = None,
    ) -> AnswerT:
        answer = await self._call("POST", path, msgspec.json.encode(request), headers)
        return decode_answer(answer, of)

    async def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """One call; retried for `patience` seconds while MGMT is unreachable or not ready."""
        all_headers = {**self._headers, **(headers or {})}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                answer = await self._pool.ask(method, path, body, all_headers)
                self._note_incarnation(answer)
                if answer.status < FIRST_ERROR_STATUS:
                    break
                raise to_error(answer)
            except Unreachable:
                if loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)
        if self._is_declaration_due and not self._is_declaring:
            await self._declare_again()
        return answer

    def _note_incarnation(self, answer: HttpResponse) -> None:
        """Remember the incarnation; a new one may not know this component or its state."""
        name_bytes = INCARNATION_HEADER_BYTES
        value = next((value for name, value in answer.fields if name.lower() == name_bytes), b"")
        if value and (incarnation := value.decode("latin-1")) != self.incarnation:
            self._is_declaration_due = bool(self.incarnation and self._declared)
            self.incarnation = incarnation

    async def _declare_again(self) -> None:
        """Once for each answer: after a restore, two MGMT processes may name different incarnations in turns."""
        self._is_declaration_due, self._is_declaring = False, True
        try:
            await self._post("/set_component_state", self._declared, ComponentStatus)
        except UsherError:
            self._is_declaration_due = True  # with the next answer
        finally:
            self._is_declaring = False
