"""The work behind `usher stats`: what was searched for, read and told in lines.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Sequence
from dataclasses import asdict

from usher.cli.app import App, show_json, show_table, tell
from usher.cli.fleet import at_mgmt
from usher.cli.output import echo
from usher.cli.queue import distance, read_since
from usher.cli.words import display_time, plain, printable
from usher.db_clock import server_time
from usher.mgmt import look
from usher.mgmt.look import MOST_QUERIES, Queries, Term


async def read(app: App, since: str, limit: int) -> tuple[Queries, list[Term]]:
    async with at_mgmt(app) as conn:
        moment = read_since(since, await server_time(conn))
        terms = await look.terms(conn, since=moment, n=limit)
        return await look.queries(conn, since=moment), terms


def show(found: tuple[Queries, Sequence[Term]], *, as_json: bool) -> None:
    queries, terms = found
    if as_json:
        show_json({**asdict(queries), "terms": [plain(asdict(one)) for one in terms]})
        return
    more = ", the last of them" if queries.number >= MOST_QUERIES else ""
    tell("queries", f"{queries.number}{more}")
    if not queries.number:
        return
    tell("time", f"median {seconds(queries.median)}, mean {seconds(queries.mean)}")
    tell("", f"95 % within {seconds(queries.p95)}, slowest {seconds(queries.slowest)}")
    echo()
    now = display_time()
    rows = [
        (
            one.number,
            seconds(one.mean),
            seconds(one.slowest),
            distance(one.latest, now),
            printable(one.term),
        )
        for one in terms
    ]
    show_table(("QUERIES", "MEAN", "SLOWEST", "LATEST", "TERM"), rows)


def seconds(number: float) -> str:
    """In milliseconds up to ten seconds."""
    return f"{number * 1000:.0f}ms" if number < 10 else f"{number:.1f}s"  # noqa: PLR2004
