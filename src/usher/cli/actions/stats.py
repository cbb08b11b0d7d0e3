"""The work behind `usher stats`: what was searched for, read and told in lines.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from usher.cli.actions.components import at_mgmt
from usher.cli.app import App, show_json, show_table, tell
from usher.cli.output import echo
from usher.cli.queue_access import distance, read_since
from usher.cli.wording import display_time, plain, printable
from usher.db.clock import server_time
from usher.mgmt import queries as look
from usher.mgmt.queries import MOST_QUERIES, Queries, QueryDay, Term


@dataclass(frozen=True, slots=True)
class QueryReport:
    """Single queries with their terms, and the sums of earlier days with theirs."""

    queries: Queries
    terms: list[Term]
    days: list[QueryDay]
    day_terms: list[Term]


async def read(app: App, since: str, limit: int) -> QueryReport:
    async with at_mgmt(app) as conn:
        moment = read_since(since, await server_time(conn))
        return QueryReport(
            queries=await look.queries(conn, since=moment),
            terms=await look.terms(conn, since=moment, n=limit),
            days=await look.query_days(conn, since=moment),
            day_terms=await look.query_day_terms(conn, since=moment, n=limit),
        )


def show(report: QueryReport, *, as_json: bool) -> None:
    queries = report.queries
    if as_json:
        lists = {
            "terms": [plain(asdict(term)) for term in report.terms],
            "earlier_days": [plain(asdict(day)) for day in report.days],
            "earlier_terms": [plain(asdict(term)) for term in report.day_terms],
        }
        show_json({**asdict(queries), **lists})
        return
    more = ", the last of them" if queries.number >= MOST_QUERIES else ""
    tell("queries", f"{queries.number}{more}")
    if queries.number:
        tell("time", f"median {seconds(queries.median)}, mean {seconds(queries.mean)}")
        tell("", f"95 % within {seconds(queries.p95)}, slowest {seconds(queries.slowest)}")
        echo()
        show_terms(report.terms)
    if report.days:
        echo()
        days = [
            (f"{day.day}", day.number, seconds(day.mean), seconds(day.slowest))
            for day in report.days
        ]
        show_table(("EARLIER DAY", "QUERIES", "MEAN", "SLOWEST"), days)
        echo()
        show_terms(report.day_terms)


def show_terms(terms: Sequence[Term]) -> None:
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
