"""The work behind `usher tokens`: tokens made, listed and revoked.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import count

from usher.cli.actions.components import mgmt_transaction
from usher.cli.app import App, show_json, show_table
from usher.cli.output import echo
from usher.cli.queue_access import relative_time
from usher.cli.wording import display_time, json_fields, printable
from usher.db.clock import server_time
from usher.errors import BadInput
from usher.mgmt import tokens
from usher.mgmt.tokens import Token
from usher.queue.policy import to_span


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """The token that the operator asked for."""

    name: str | None
    scope: str
    type: str | None
    address: str | None
    lifetime: timedelta | None


def parse_lifetime(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return to_span(text)
    except ValueError as error:
        raise BadInput(f"--expires cannot be {text!r}: {error}.", hint="--expires 90d") from error


async def create_token(app: App, wish: TokenOptions) -> tuple[str, str]:
    """The name and the secret."""
    async with mgmt_transaction(app) as conn:
        name = wish.name
        if name is None:
            taken = {token.name for token in await tokens.list_tokens(conn)}
            names = (f"{wish.type or wish.scope}-{number}" for number in count(1))
            name = next(free for free in names if free not in taken)
        secret = await tokens.make(
            conn,
            name,
            wish.scope,
            wish.type,
            address=wish.address,
            lifetime=wish.lifetime,
            now=await server_time(conn),
        )
        return name, secret


async def move_token(app: App, name: str, address: str) -> str:
    """The address as it is stored."""
    async with mgmt_transaction(app) as conn:
        return await tokens.move(conn, name, address)


def show_created(app: App, made: tuple[str, str], *, as_json: bool) -> None:
    name, secret = made
    if as_json:
        show_json({"name": name, "secret": secret})
        return
    echo(secret)
    app.say(f"token {printable(name)}: keep it now, it is shown only once")


async def find_tokens(app: App) -> list[Token]:
    async with mgmt_transaction(app) as conn:
        return await tokens.list_tokens(conn)


def show_tokens(found: Sequence[Token], *, as_json: bool) -> None:
    if as_json:
        show_json([json_fields(asdict(one)) for one in found])
        return
    now = display_time()
    rows = [
        (
            printable(one.name),
            one.scope,
            one.type or "-",
            one.address or "-",
            relative_time(one.created_at, now),
            relative_time(one.used_at, now),
            relative_time(one.expires_at, now),
            relative_time(one.revoked_at, now),
        )
        for one in found
    ]
    show_table(("TOKEN", "SCOPE", "TYPE", "ADDRESS", "MADE", "USED", "EXPIRES", "REVOKED"), rows)


async def revoke_tokens(app: App, names: Sequence[str]) -> dict[str, bool]:
    """Each name, and whether it was good until now."""
    async with mgmt_transaction(app) as conn:
        now = await server_time(conn)
        return {name: await tokens.revoke(conn, name, now=now) for name in names}
