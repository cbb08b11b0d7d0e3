"""Tokens by name; only hashes of their secrets are stored."""

import shlex
from datetime import datetime
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href
from usher.console.page import (
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.mgmt import tokens
from usher.mgmt.tokens import Scope, Token
from usher.observe.status_report import read_transaction
from usher.wording import relative_time

SCOPES: Final[tuple[Scope, ...]] = ("read", "work", "admin")


async def tokens_page(call: MgmtCall[Any]) -> ConsolePage:
    """Tokens by name."""
    now = database_time(call)
    given = {name: condition(call, name) for name in ("contains", "scope")}
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await tokens.list_tokens(
            conn,
            contains=given["contains"] or None,
            scope=choice(call, "scope", SCOPES),
            after=condition(call, "after"),
            n=ROWS_PER_PAGE + 1,
        )
    shown = listed[:ROWS_PER_PAGE]
    table = ConsoleTable(
        ("Token", "Scope", "Component", "Created", "Used", "Expires", "State"),
        [token_row(token, now) for token in shown],
        (
            FilterField("contains", "Name or component contains", given["contains"]),
            FilterField("scope", "Scope", given["scope"], SCOPES),
        ),
        path="/tokens",
        next_href=next_href("/tokens", given, shown[-1].name if len(listed) > len(shown) else None),
        empty="No token matches.",
    )
    options = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    command = shlex.join(["usher", "tokens", "list", *options])
    return list_page("Tokens", table, shown, command)


def token_row(token: Token, now: datetime) -> TableRow:
    is_good = token.is_good(now)
    state = "valid" if is_good else "revoked" if token.revoked_at else "expired"
    cells = (
        TableCell(token.name),
        TableCell(token.scope),
        TableCell(" at ".join(filter(None, (token.type, token.address))) or "-"),
        TableCell(relative_time(token.created_at, now)),
        TableCell(relative_time(token.used_at, now)),
        TableCell(relative_time(token.expires_at, now)),
        TableCell(state, kind="text" if is_good else "bad"),
    )
    links = () if token.revoked_at else (ACTIONS["token-revoke"].link(token=token.name),)
    return TableRow(cells, links)
