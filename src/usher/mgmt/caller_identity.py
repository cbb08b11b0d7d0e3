"""Which component calls MGMT.

A caller that names itself, by a declared host or by its token, has one type, learned once. A caller without a name is
identified by its address and by the role that its calls imply, so one address may have a component of each type.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import Conflict, NotAllowed
from usher.messages.components import EngineName
from usher.mgmt.component_names import IDENTITY_HINT, ComponentType
from usher.mgmt.components import ComponentRecord, NewEvent, add_events, of_id
from usher.mgmt.placement_rules import machine
from usher.mgmt.row_membership import join_row

store = load_statements(__file__)
HOST_LOCK: Final = 0x7573_6865  # "ushe": the class of the locks of hosts


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """What a call says about its sender: the host, the roles that the call implies, and its proof.

    With one role, a component whose role is not known yet learns it. `is_named` callers declared the host or have a
    token for it; others are known by the address they call from. `is_trusted` callers proved to be the operator.
    """

    host: str
    roles: tuple[ComponentType, ...] = ()
    is_named: bool = True
    token_id: int | None = None
    is_trusted: bool = False

    @property
    def role(self) -> ComponentType | None:
        """The only role that the call implies."""
        return self.roles[0] if len(self.roles) == 1 else None


async def identify(
    conn: Connection,
    caller: CallerIdentity,
    *,
    row: int | None = None,
    engine: EngineName | None = None,
    now: datetime,
) -> ComponentRecord:
    """Return the component that calls, and record that it was seen now; registers it if it is new.

    An index server may declare its row and its engine: see `join_row`. Raise Conflict if a caller with a name plays
    another role than before. Raise NotAllowed if the host has a good token that the caller did not show, unless the
    caller is trusted.
    """
    caller_row = await recognise(conn, caller, now=now)
    if caller_row and not _is_changed(caller_row, caller, row, engine):
        return caller_row
    async with conn.transaction():
        await store.lock_host.tuples(conn, lock=HOST_LOCK, host=caller.host)
        component = await _own_row(conn, caller, now)
        await _bind_token(conn, component, caller.token_id)
        await _learn_type(conn, component, caller.role, now)
        return await join_row(conn, await of_id(conn, component.id), row, engine, now=now)


async def recognise(
    conn: Connection, caller: CallerIdentity, *, now: datetime
) -> ComponentRecord | None:
    """Return the component that calls, in any role, and record that it was seen now; None if it is not registered."""
    rows = await store.recognise.tuples(
        conn, host=caller.host, roles=list(caller.roles), token=caller.token_id, now=now
    )
    if not rows:
        return None
    [(*columns, has_other_token)] = rows
    if has_other_token:
        await _check_tokens(conn, caller)
    return ComponentRecord(*columns)


async def has_components(conn: Connection, host: str) -> bool:
    """Whether a component has this host."""
    return bool(await store.types_at.tuples(conn, host=host))


def _is_changed(
    component: ComponentRecord, caller: CallerIdentity, row: int | None, engine: str | None
) -> bool:
    return (
        (caller.role or component.type) != component.type
        or (caller.token_id is not None and caller.token_id != component.token_id)
        or (row is not None and row != component.row)
        or (engine is not None and engine != component.engine)
        or (component.type == "index-server" and component.row is None)
    )


async def _own_row(conn: Connection, caller: CallerIdentity, now: datetime) -> ComponentRecord:
    """The caller's component, registered if there is none. Call `lock_host` first."""
    component = await recognise(conn, caller, now=now)
    if component and (caller.role is None or component.type in (None, caller.role)):
        return component
    types = [kind or "unknown" for kind in await store.types_at.column(conn, host=caller.host)]
    if caller.is_named and types:
        wanted = caller.role or "clear which of them calls"
        raise Conflict(
            f"{caller.host} is a component of type {', '.join(types)}, not {wanted}.",
            hint=f"Give every component a host and port of its own. {IDENTITY_HINT}",
        )
    await _check_tokens(conn, caller)
    id_ = await store.register.value(conn, host=caller.host, machine=machine(caller.host), now=now)
    await add_events(conn, NewEvent(now, "registered", id_))
    return await of_id(conn, id_)


async def _check_tokens(conn: Connection, caller: CallerIdentity) -> None:
    """Raise NotAllowed if this host has a valid token and the caller has another one or none."""
    if not caller.is_trusted and await store.other_good_tokens.tuples(
        conn, host=caller.host, token=caller.token_id
    ):
        raise not_its_token(caller.host)


async def _bind_token(conn: Connection, component: ComponentRecord, token_id: int | None) -> None:
    if token_id is None or token_id == component.token_id:
        return
    if not await store.bind_token.tuples(conn, id=component.id, token=token_id):
        raise not_its_token(component.host)


def not_its_token(host: str) -> NotAllowed:
    return NotAllowed(
        f"{host} belongs to another token.",
        hint=f"Use its own, or revoke that with `usher tokens revoke`. {IDENTITY_HINT}",
    )


async def _learn_type(
    conn: Connection, component: ComponentRecord, kind: ComponentType | None, now: datetime
) -> None:
    if kind is not None and await store.learn_type.tuples(conn, id=component.id, type=kind):
        await add_events(conn, NewEvent(now, "type", component.id, None, kind))
