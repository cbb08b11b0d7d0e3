"""Endpoints for tickets: components get tickets for each other, and what they need to verify those of others."""

from collections.abc import Mapping
from typing import Final

from usher.api.access import read_and
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import mgmt_connection
from usher.errors import BadInput
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import AccessRule, EndpointList
from usher.messages.components import (
    MAX_HOSTS_PER_TICKET_REQUEST,
    GuardQuery,
    GuardState,
    TicketRequest,
    Tickets,
)
from usher.mgmt import components
from usher.mgmt.component_names import TYPES, ComponentType
from usher.mgmt.tokens import Token
from usher.tickets import ACTIONS, LIFETIME_SECONDS, Action, Ticket, audience_key, sign

# What each type of component may ask other components for.
ACTIONS_OF_TYPE: Final[Mapping[ComponentType, tuple[Action, ...]]] = {
    "index-builder": ("content", "index"),
    "index-server": ("index",),
    "front-end": ("query",),
}
ENDPOINTS = EndpointList()


def actions_of(token: Token) -> tuple[Action, ...]:
    """What a caller with this token may ask components for; `read` does not include index chunks."""
    if token.scope == "admin":
        return ACTIONS
    if token.scope == "read":
        return ("query",)
    return ACTIONS_OF_TYPE.get(token.type, ()) if token.type else ()


@ENDPOINTS.post(
    "/v1/tickets",
    "Issue tickets for calls to other components",
    read_and("index-builder", "index-server", "front-end"),
)
async def issue_tickets(call: MgmtCall[TicketRequest]) -> Tickets:
    hosts, token = call.body.hosts, call.caller.token
    check_count(hosts, "hosts", MAX_HOSTS_PER_TICKET_REQUEST)
    if token is None or not (actions := actions_of(token)):
        return Tickets({}, LIFETIME_SECONDS)  # on one machine, components need none
    state = await call.context.tickets.state()
    async with mgmt_connection(call, alone=True) as conn:
        component_hosts = await components.known_hosts(conn, hosts)
    is_query_only = actions == ("query",)
    lifetime = call.context.tickets.query_lifetime_seconds if is_query_only else LIFETIME_SECONDS
    expires = state.now + lifetime
    signed = {
        host: sign(Ticket(host, token.id, actions, expires), audience_key(state.key, host))
        for host in component_hosts
    }
    return Tickets(signed, LIFETIME_SECONDS)


@ENDPOINTS.get(
    "/v1/guard", "What a component needs to verify tickets", AccessRule("work", frozenset(TYPES))
)
async def show_guard(call: MgmtCall[GuardQuery]) -> GuardState:
    if call.caller.token_id is None:
        raise BadInput(
            "Only a component with a token of its own has a key to verify tickets.",
            hint="usher tokens add --type crawler",
        )
    component = await call.context.callers.component(call.caller, call.body.host)
    state = await call.context.tickets.state()
    key = audience_key(state.key, component.host)
    return GuardState(component.host, key.hex(), state.now, state.revoked)
