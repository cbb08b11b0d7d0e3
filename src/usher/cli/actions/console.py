"""`usher console`: make a link that signs in the operator of this data directory, once."""

import asyncio
from urllib.parse import urlsplit

from usher.cli.app import App, show_json
from usher.cli.area_access import mgmt_transaction
from usher.cli.output import echo
from usher.db.clock import server_time
from usher.errors import Unreachable
from usher.local.ports import Ports, is_run_locked
from usher.mgmt import console_sessions

CONNECT_SECONDS = 3.0


async def show_link(app: App, mgmt: str | None, *, as_json: bool) -> None:
    """Print the link; Unreachable if no MGMT answers at its address."""
    address = mgmt_address(app, mgmt)
    await check_reachable(address)
    async with mgmt_transaction(app) as conn:
        secret = await console_sessions.add_link(conn, now=await server_time(conn))
    link = f"{address.rstrip('/')}/login?key={secret}"
    if as_json:
        show_json({"url": link})
        return
    echo(link)
    app.say("The link works once, within 5 minutes, on this machine.")


def mgmt_address(app: App, mgmt: str | None) -> str:
    """The given address, that of the local stack if it runs, or that of the settings."""
    if mgmt is None and is_run_locked(app.settings.data):
        return Ports.read(app.settings.data).mgmt_url
    return app.settings_for(mgmt).mgmt_url


async def check_reachable(address: str) -> None:
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError, ValueError) as error:
        raise Unreachable(f"No MGMT answers at {address}.", hint="usher up") from error
    writer.close()
