"""Conditions for pages, as the operator types them in a list or in an action on all matching pages."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from usher.console.text_values import http_status, one_of, time_ago, time_ahead
from usher.db.pool import Connection
from usher.door import admin
from usher.door.host_lookup import host_root, unknown_host
from usher.mgmt.page_list import RESULTS, STATES, PageConditions

CONDITION_NAMES: Final = (
    "host", "state", "result", "reason", "path", "status", "due", "older", "newer",
)  # fmt: skip


async def host_number(conn: Connection, text: str) -> int:
    """The number of a host, from its name or any of its URLs."""
    name = host_root(text).host
    host = await admin.show_host(conn, name=name)
    if host is None:
        raise await unknown_host(conn, name)
    return host.domain64


async def read_conditions(
    conn: Connection, given: Mapping[str, str], now: datetime
) -> PageConditions:
    """The conditions of a list or of an action on all matching pages; empty texts do not apply."""
    host = given["host"]
    return PageConditions(
        domain64=await host_number(conn, host) if host else None,
        state=one_of("state", given["state"], STATES),
        result=one_of("result", given["result"], RESULTS),
        reason=given["reason"] or None,
        path=given["path"] or None,
        status=http_status(given["status"]),
        due=time_ahead(given["due"], now),
        before=time_ago(given["older"], now),
        since=time_ago(given["newer"], now),
    )
