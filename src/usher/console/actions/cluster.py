"""Actions on tokens, chunks and index servers: revoke, retry, drain."""

from functools import partial
from typing import Any

from usher.api.context import MgmtCall
from usher.console.actions.action import (
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
    whole_number,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import Conflict, NotFound
from usher.mgmt import admin, components, tokens

COMPONENT = ActionField("component", "Component")


async def revoke_token(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    if not await tokens.revoke(conn, fields["token"], now=await server_time(conn)):
        raise Conflict(f"The token {fields['token']} was revoked before.", hint=tokens.HINT)
    return ActionResult("valid", "revoked", "It is refused within 2 seconds, and for ever.")


async def retry_chunk(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    id_ = whole_number(fields["chunk"], "chunk")
    [result] = await admin.retry(conn, [id_], now=await server_time(conn))
    if result.what == "missing":
        raise NotFound(f"There is no chunk {id_}.", hint="usher chunks list")
    if result.what == "same":
        raise Conflict(f"Chunk {id_} is not parked.", hint=f"usher chunks show {id_}")
    return ActionResult("parked", "crawled", f"Builders try chunk {id_} again.")


async def drain(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields, *, on: bool
) -> ActionResult:
    before = await components.show(conn, fields["component"], "index-server")
    after = await components.drain(conn, before.host, on=on, now=await server_time(conn))
    message = f"{after.host} gives its chunks away." if on else f"{after.host} gets chunks again."
    return ActionResult(drain_text(on=before.draining), drain_text(on=on), message)


def drain_text(*, on: bool) -> str:
    return "draining" if on else "in use"


ACTIONS = (
    ConsoleAction(
        "token-revoke",
        "Revoke",
        "Every MGMT refuses the token within 2 seconds; its sessions in the console end. This cannot be undone.",
        (ActionField("token", "Token"),),
        lambda fields: ["tokens", "revoke", fields["token"]],
        "mgmt",
        revoke_token,
        lambda _fields: "/tokens",
    ),
    ConsoleAction(
        "chunk-retry",
        "Build again",
        "Builders try the parked chunk again.",
        (ActionField("chunk", "Chunk"),),
        lambda fields: ["chunks", "retry", fields["chunk"]],
        "mgmt",
        retry_chunk,
        lambda fields: f"/chunks/{fields['chunk']}",
    ),
    ConsoleAction(
        "component-drain",
        "Drain",
        "The other servers of its row take over its chunks; it answers until they have them.",
        (COMPONENT,),
        lambda fields: ["components", "drain", fields["component"]],
        "mgmt",
        partial(drain, on=True),
        lambda _fields: "/components",
    ),
    ConsoleAction(
        "component-undrain",
        "Use again",
        "The index server gets its share of the chunks again.",
        (COMPONENT,),
        lambda fields: ["components", "undrain", fields["component"]],
        "mgmt",
        partial(drain, on=False),
        lambda _fields: "/components",
    ),
)
