"""`usher tokens`: create, list, move and revoke tokens."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import count

from usher.cli.app import App, show_json, show_list
from usher.cli.area_access import call_in, mgmt_transaction
from usher.cli.output import display_time, echo
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.mgmt import tokens
from usher.mgmt.tokens import Scope
from usher.queue.policy import to_duration
from usher.wording import printable, relative_time


def parse_lifetime(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return to_duration(text)
    except ValueError as error:
        raise BadInput(f"--expires cannot be {text!r}: {error}.", hint="--expires 90d") from error


async def unused_name(conn: Connection, prefix: str) -> str:
    used = {token.name for token in await tokens.list_tokens(conn)}
    names = (f"{prefix}-{number}" for number in count(1))
    return next(free for free in names if free not in used)


async def create_token(
    app: App,
    name: str | None,
    *,
    scope: str,
    type_: str | None,
    address: str | None,
    expires: str | None,
    as_json: bool,
) -> None:
    lifetime = parse_lifetime(expires)
    async with mgmt_transaction(app) as conn:
        name = await unused_name(conn, type_ or scope) if name is None else name
        now = await server_time(conn)
        secret = await tokens.make(
            conn, name, scope, type_, address=address, lifetime=lifetime, now=now
        )
    if as_json:
        show_json({"name": name, "secret": secret})
        return
    echo(secret)
    app.say(f"Token {printable(name)}: store the secret now. It is not shown again.")


def move_token(app: App, name: str, address: str) -> None:
    moved = call_in(mgmt_transaction(app), tokens.move, name, address)
    app.say(f"{name} now belongs to {moved}.")


def show_tokens(app: App, *, contains: str | None, scope: Scope | None, as_json: bool) -> None:
    listed = call_in(mgmt_transaction(app), tokens.list_tokens, contains=contains, scope=scope)
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
    headings = ("TOKEN", "SCOPE", "TYPE", "ADDRESS", "CREATED", "USED", "EXPIRES", "REVOKED")
    show_list(app, listed, headings, rows, as_json=as_json)


async def revoke_tokens(app: App, names: Sequence[str]) -> None:
    """Revoke tokens, all or none."""
    async with mgmt_transaction(app) as conn:
        now = await server_time(conn)
        revoked = {name: await tokens.revoke(conn, name, now=now) for name in names}
    for name, new in revoked.items():
        app.say(f"revoked {name}" if new else f"{name} was already revoked")
