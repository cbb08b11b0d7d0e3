"""`usher tokens`: create, list, move and revoke tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from usher.cli.app import App, show_json, show_table
from usher.cli.area_access import mgmt_transaction
from usher.cli.output import echo
from usher.cli.queue_access import relative_time
from usher.cli.wording import display_time, printable, records_json
from usher.db.clock import server_time
from usher.errors import BadInput
from usher.mgmt import tokens
from usher.mgmt.tokens import Token
from usher.queue.policy import to_duration


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """The options of `usher tokens add`."""

    name: str | None
    scope: str
    type: str | None
    address: str | None
    lifetime: timedelta | None


def parse_lifetime(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return to_duration(text)
    except ValueError as error:
        raise BadInput(f"--expires cannot be {text!r}: {error}.", hint="--expires 90d") from error


async def create_token(app: App, options: TokenOptions) -> tuple[str, str]:
    """Create a token; return its name and its secret."""
    async with mgmt_transaction(app) as conn:
        name = options.name
        if name is None:
            used = {token.name for token in await tokens.list_tokens(conn)}
            names = (f"{options.type or options.scope}-{number}" for number in count(1))
            name = next(free for free in names if free not in used)
        secret = await tokens.make(
            conn,
            name,
            options.scope,
            options.type,
            address=options.address,
            lifetime=options.lifetime,
            now=await server_time(conn),
        )
        return name, secret


async def move_token(app: App, name: str, address: str) -> str:
    """Change the address of a token; return it in canonical form."""
    async with mgmt_transaction(app) as conn:
        return await tokens.move(conn, name, address)


def show_created(app: App, name: str, secret: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"name": name, "secret": secret})
        return
    echo(secret)
    app.say(f"Token {printable(name)}: store the secret now. It is not shown again.")


async def find_tokens(app: App) -> list[Token]:
    async with mgmt_transaction(app) as conn:
        return await tokens.list_tokens(conn)


def show_tokens(listed: Sequence[Token], *, as_json: bool) -> None:
    if as_json:
        show_json(records_json(listed))
        return
    now = display_time()
    rows = [
        (
            printable(token.name),
            token.scope,
            token.type or "-",
            token.address or "-",
            relative_time(token.created_at, now),
            relative_time(token.used_at, now),
            relative_time(token.expires_at, now),
            relative_time(token.revoked_at, now),
        )
        for token in listed
    ]
    show_table(("TOKEN", "SCOPE", "TYPE", "ADDRESS", "CREATED", "USED", "EXPIRES", "REVOKED"), rows)


async def revoke_tokens(app: App, names: Sequence[str]) -> dict[str, bool]:
    """Revoke tokens; the value of each name is False if it was revoked before."""
    async with mgmt_transaction(app) as conn:
        now = await server_time(conn)
        return {name: await tokens.revoke(conn, name, now=now) for name in names}
