"""Components at MGMT: they declare themselves and keep their leases; people look at them, their chunks and events."""

from usher.api.access import READ, work
from usher.api.callers import role_named
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time, lease_holders, mgmt_connection
from usher.errors import NotFound
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.components import (
    ComponentList,
    ComponentsQuery,
    ComponentStateRequest,
    ComponentStatus,
    ComponentView,
    EventList,
    EventsQuery,
    EventView,
    LeaseAnswer,
    LeaseRequest,
)
from usher.messages.fields import CHUNK_ID, MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.mgmt import chunks, components, queries
from usher.mgmt.component_names import TYPES, storable_text, type_of
from usher.mgmt.components import ComponentRecord


async def set_component_state(call: MgmtCall[ComponentStateRequest]) -> ComponentStatus:
    asked, callers = call.body, call.context.callers
    callers.changed(call.caller, asked.host)
    roles = () if asked.type is None else (role_named(asked.type),)
    me = await callers.meet(call.caller, asked.host, roles, row=asked.row)
    async with mgmt_connection(call) as conn:
        await components.declare(
            conn,
            me.id,
            asked.state,
            reason=asked.reason,
            weight=asked.weight,
            now=database_time(call),
        )
        if asked.anew and me.type == "crawler":
            await chunks.restart_crawler(conn, me.id, n=MAX_CHUNKS_PER_REQUEST, now=database_time(call))
    callers.changed(call.caller, asked.host)
    return ComponentStatus(me.host, me.type, asked.state, me.health, me.row)


async def renew_leases(call: MgmtCall[LeaseRequest]) -> LeaseAnswer:
    if len(call.body.chunks) > MAX_CHUNKS_PER_REQUEST:
        message = f"{len(call.body.chunks):,} chunks are more than {MAX_CHUNKS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Ask in several requests.")
    lease, held = call.context.limits.lease, set[int]()
    holders = await lease_holders(call)
    wanted = dict.fromkeys(chunk_number(one) for one in call.body.chunks)
    async with mgmt_connection(call, alone=True) as conn:
        for me in holders:
            held |= await chunks.renew(
                conn, me.id, list(wanted), lease=lease, now=database_time(call)
            )
            if not me.renews_leases:
                await components.set_renews_leases(conn, me.id)
    return LeaseAnswer(sorted(held), [one for one in wanted if one not in held])


async def list_components(call: MgmtCall[ComponentsQuery]) -> ComponentList:
    kind = None if call.body.type is None else type_of(call.body.type)
    async with call.context.mgmt_db.connection() as conn:
        found = await components.list_components(conn, type=kind)
    return ComponentList([shown_component(one) for one in found])


async def show_component(call: MgmtCall[ComponentsQuery]) -> ComponentView:
    kind = None if call.body.type is None else type_of(call.body.type)
    async with call.context.mgmt_db.connection() as conn:
        return shown_component(await components.show(conn, call.path_params["host"], kind))


def shown_component(one: ComponentRecord) -> ComponentView:
    return ComponentView(**{name: getattr(one, name) for name in ComponentView.__struct_fields__})


async def show_chunk(call: MgmtCall[None]) -> queries.ChunkDetails:
    word = call.path_params["id"]
    if not CHUNK_ID.fullmatch(word):
        raise NotFound(f"{storable_text(word, 40)!a} is not the id of a chunk.")
    async with call.context.mgmt_db.connection() as conn:
        return await queries.show_chunk(conn, chunk_number(word))


async def list_events(call: MgmtCall[EventsQuery]) -> EventList:
    asked = call.body
    async with call.context.mgmt_db.connection() as conn:
        kind = None if asked.type is None else type_of(asked.type)
        one = None if asked.host is None else (await components.show(conn, asked.host, kind)).id
        found = await components.events(conn, one, asked.limit, before=asked.before)
    fields = EventView.__struct_fields__
    shown = [EventView(**{name: getattr(event, name) for name in fields}) for event in found]
    return EventList(shown, shown[-1].id if len(shown) == asked.limit else None)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/set_component_state",
        set_component_state,
        ComponentStateRequest,
        ComponentStatus,
        "A component says how it is; one that is new is registered",
        access=work(*TYPES),
    ),
    Endpoint(
        "POST",
        "/v1/lease",
        renew_leases,
        LeaseRequest,
        LeaseAnswer,
        "A sign of life for chunks that are crawled or built",
        access=work("crawler", "index-builder"),
    ),
    Endpoint(
        "GET",
        "/v1/components",
        list_components,
        ComponentsQuery,
        ComponentList,
        "Components by host",
        access=READ,
    ),
    Endpoint(
        "GET",
        "/v1/components/{host}",
        show_component,
        ComponentsQuery,
        ComponentView,
        "One component; `type` says which where several share a host",
        access=READ,
    ),
    Endpoint(
        "GET",
        "/v1/chunks/{id}",
        show_chunk,
        None,
        queries.ChunkDetails,
        "A chunk, its copies and its pages",
        access=READ,
    ),
    Endpoint(
        "GET",
        "/v1/events",
        list_events,
        EventsQuery,
        EventList,
        "What happened to components and chunks, the last first",
        access=READ,
    ),
)
