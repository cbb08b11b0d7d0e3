"""Endpoints for all components: state and leases; and for people: components, chunks and events."""

import msgspec

from usher import __version__
from usher.api.access import READ, work
from usher.api.callers import role_named
from usher.api.context import MgmtCall
from usher.api.event_access import visible_event
from usher.api.mgmt_calls import database_time, lease_holders, mgmt_connection
from usher.errors import NotFound
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.messages.components import (
    ComponentDetails,
    ComponentList,
    ComponentsQuery,
    ComponentStateRequest,
    ComponentStatus,
    EventList,
    EventsQuery,
    EventView,
    LeaseAnswer,
    LeaseRequest,
)
from usher.messages.fields import CHUNK_ID, MAX_CHUNKS_PER_REQUEST, chunk_number
from usher.mgmt import chunks, components, queries
from usher.mgmt.component_names import TYPES, storable_text, type_of
from usher.telemetry import Log
from usher.versions import version_problem

log = Log("mgmt")
ENDPOINTS = EndpointList()


@ENDPOINTS.post(
    "/set_component_state", "Declare a component's state; register a new one", work(*TYPES)
)
async def set_component_state(call: MgmtCall[ComponentStateRequest]) -> ComponentStatus:
    request, callers = call.body, call.context.callers
    callers.forget_host(call.caller, request.host)
    roles = () if request.type is None else (role_named(request.type),)
    component = await callers.component(
        call.caller, request.host, roles, row=request.row, engine=request.engine
    )
    async with mgmt_connection(call) as conn:
        now = database_time(call)
        declared = await components.declare(
            conn,
            component.id,
            request.state,
            reason=request.reason,
            weight=request.weight,
            version=declared_version(request),
            now=now,
        )
        if request.renews_leases:
            await components.set_renews_leases(conn, component.id)
        if request.anew and component.type == "crawler":
            await chunks.restart_crawler(conn, component.id, n=MAX_CHUNKS_PER_REQUEST, now=now)
    callers.forget_host(call.caller, request.host)
    if request.type and (problem := version_problem(__version__, declared.version)):
        log.warning("version", component=component.host, problem=problem)
    return ComponentStatus(
        component.host, component.type, request.state, component.health, component.row, __version__
    )


def declared_version(request: ComponentStateRequest) -> str | None:
    """The version to store; None keeps the present one. A component that registers without one has none."""
    if request.version is None:
        return "" if request.type else None
    return storable_text(request.version)


@ENDPOINTS.post("/v1/lease", "Renew the leases of chunks", work("crawler", "index-builder"))
async def renew_leases(call: MgmtCall[LeaseRequest]) -> LeaseAnswer:
    check_count(call.body.chunks, "chunks", MAX_CHUNKS_PER_REQUEST)
    lease, held = call.context.limits.lease, set[int]()
    holders = await lease_holders(call)
    ids = list(dict.fromkeys(chunk_number(chunk) for chunk in call.body.chunks))
    async with mgmt_connection(call, alone=True) as conn:
        for holder in holders:
            held |= await chunks.renew(conn, holder.id, ids, lease=lease, now=database_time(call))
            if not holder.renews_leases:
                await components.set_renews_leases(conn, holder.id)
    return LeaseAnswer(sorted(held), [id_ for id_ in ids if id_ not in held])


@ENDPOINTS.get("/v1/components", "Components by host", READ)
async def list_components(call: MgmtCall[ComponentsQuery]) -> ComponentList:
    kind = None if call.body.type is None else type_of(call.body.type)
    async with call.context.mgmt_db.connection() as conn:
        records = await components.list_components(conn, type=kind)
    return ComponentList(msgspec.convert(records, list[ComponentDetails], from_attributes=True))


@ENDPOINTS.get("/v1/components/{host}", "One component; `type` selects one of several", READ)
async def show_component(call: MgmtCall[ComponentsQuery]) -> ComponentDetails:
    kind = None if call.body.type is None else type_of(call.body.type)
    async with call.context.mgmt_db.connection() as conn:
        record = await components.show(conn, call.path_params["host"], kind)
    return msgspec.convert(record, ComponentDetails, from_attributes=True)


@ENDPOINTS.get("/v1/chunks/{id}", "A chunk, its copies and its pages", READ)
async def show_chunk(call: MgmtCall[None]) -> queries.ChunkDetails:
    id_ = call.path_params["id"]
    if not CHUNK_ID.fullmatch(id_):
        raise NotFound(f"{storable_text(id_, 40)!a} is not the id of a chunk.")
    async with call.context.mgmt_db.connection() as conn:
        return await queries.show_chunk(conn, chunk_number(id_))


@ENDPOINTS.get("/v1/events", "Events of components and chunks, the latest first", READ)
async def list_events(call: MgmtCall[EventsQuery]) -> EventList:
    query = call.body
    async with call.context.mgmt_db.connection() as conn:
        kind = None if query.type is None else type_of(query.type)
        host = query.host
        component = None if host is None else (await components.show(conn, host, kind)).id
        records = await components.events(conn, component, query.limit, before=query.before)
    shown = [visible_event(call, record) for record in records]
    events = msgspec.convert(shown, list[EventView], from_attributes=True)
    return EventList(events, events[-1].id if len(events) == query.limit else None)
