"""The work behind `usher tokens`: tokens made, listed and revoked.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count

from usher.cli.app import App, show_json, show_table
from usher.cli.fleet import at_mgmt
from usher.cli.output import echo
from usher.cli.queue import distance
from usher.cli.words import plain, printable
from usher.mgmt import tokens
from usher.mgmt.tokens import Token


async def make(app: App, name: str | None, scope: str, type_: str | None) -> tuple[str, str]:
    """The name and the secret."""
    async with at_mgmt(app) as conn:
        if name is None:
            taken = {one.name for one in await tokens.list_tokens(conn)}
            words = (f"{type_ or scope}-{number}" for number in count(1))
            name = next(word for word in words if word not in taken)
        return name, await tokens.make(conn, name, scope, type_, now=datetime.now(UTC))


def show_made(app: App, made: tuple[str, str], *, as_json: bool) -> None:
    name, secret = made
    if as_json:
        show_json({"name": name, "secret": secret})
        return
    echo(secret)
    app.say(f"token {printable(name)}: keep it now, it is shown only once")


async def find_tokens(app: App) -> list[Token]:
    async with at_mgmt(app) as conn:
        return await tokens.list_tokens(conn)


def show_tokens(found: Sequence[Token], *, as_json: bool) -> None:
    if as_json:
        show_json([plain(asdict(one)) for one in found])
        return
    now = datetime.now(UTC)
    rows = [
        (
            printable(one.name),
            one.scope,
            one.type or "any",
            distance(one.created_at, now),
            distance(one.used_at, now),
            distance(one.revoked_at, now),
        )
        for one in found
    ]
    show_table(("TOKEN", "SCOPE", "TYPE", "MADE", "USED", "REVOKED"), rows)


async def revoke(app: App, names: Sequence[str]) -> dict[str, bool]:
    """Each name, and whether it was good until now."""
    async with at_mgmt(app) as conn:
        now = datetime.now(UTC)
        return {name: await tokens.revoke(conn, name, now=now) for name in names}
