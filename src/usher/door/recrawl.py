"""Recrawl whole hosts: a full knock at the root of each host, or with a hall pass at a page of it that is known."""

from collections.abc import Sequence

from usher.door import admin, hosts
from usher.door.admin import RecrawlEntrance
from usher.door.batch import BatchVerdicts
from usher.door.doorkeeper import Doorkeeper
from usher.door.host_lookup import host_root, require_hosts
from usher.door.rules import Knock
from usher.urls import Scheme, Url


async def recrawl_hosts(
    doorkeeper: Doorkeeper, texts: Sequence[str], *, hall_pass: bool
) -> tuple[BatchVerdicts, list[RecrawlEntrance]]:
    """Knock for registered hosts; NotFound if one is not. Returns the answers and, with a pass, where it knocked."""
    roots = {(root := host_root(text)).host: str(root) for text in texts}
    async with doorkeeper.db.transaction() as conn:
        registered = await hosts.find(conn, names=list(roots))
        await require_hosts(conn, list(roots), [host.name for host in registered])
        numbers = [host.domain64 for host in registered] if hall_pass else []
        entrances = await admin.recrawl_entrances(conn, hosts=numbers)
    for entrance in entrances:
        if entrance.scheme is not None and entrance.path is not None:
            url = Url(Scheme(entrance.scheme), entrance.host, entrance.path)
            roots[entrance.host] = str(url)
    knock = Knock("full", hall_pass)
    answers = await doorkeeper.knock(list(roots.values()), knock=knock, register=False)
    return answers, entrances
