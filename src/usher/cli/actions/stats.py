"""`usher stats queries`: counts, times and most frequent terms of searches."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from usher.cli.app import App, show_field, show_json, show_table
from usher.cli.area_access import call_now, mgmt_transaction
from usher.cli.output import display_time, echo
from usher.cli.queue_access import parse_since
from usher.db.pool import Connection
from usher.mgmt import queries as mgmt_queries
from usher.mgmt.queries import MAX_QUERIES, QueryDay, QueryTermTimes, QueryTimes
from usher.wording import printable, records_json, relative_time


@dataclass(frozen=True, slots=True)
class QueryReport:
    """Recent queries with their terms, and earlier days in sums with theirs."""

    queries: QueryTimes
    terms: list[QueryTermTimes]
    days: list[QueryDay]
    day_terms: list[QueryTermTimes]


async def read_queries(
    conn: Connection, since: str, limit: int, now: datetime, *, no_results: bool = False
) -> QueryReport:
    """The report; the sums of earlier days do not say which queries had no results."""
    moment = parse_since(since, now)
    if no_results:
        terms = await mgmt_queries.terms(conn, since=moment, n=limit, without_results=True)
        return QueryReport(await mgmt_queries.queries(conn, since=moment), terms, [], [])
    return QueryReport(
        queries=await mgmt_queries.queries(conn, since=moment),
        terms=await mgmt_queries.terms(conn, since=moment, n=limit),
        days=await mgmt_queries.query_days(conn, since=moment),
        day_terms=await mgmt_queries.query_day_terms(conn, since=moment, n=limit),
    )


def show_queries(app: App, since: str, limit: int, *, no_results: bool, as_json: bool) -> None:
    report = call_now(mgmt_transaction(app), read_queries, since, limit, no_results=no_results)
    queries = report.queries
    if as_json:
        lists = {
            "terms": records_json(report.terms),
            "earlier_days": records_json(report.days),
            "earlier_terms": records_json(report.day_terms),
        }
        show_json({**asdict(queries), **lists})
        return
    more = " (the latest)" if queries.number >= MAX_QUERIES else ""
    show_field("queries", f"{queries.number}{more}")
    if queries.number:
        show_field(
            "time",
            f"median {latency(queries.median)}, mean {latency(queries.mean)}",
            f"95 % within {latency(queries.p95)}, slowest {latency(queries.slowest)}",
        )
        echo()
        show_terms(report.terms)
    if report.days:
        echo()
        days = [
            (f"{day.day}", day.number, latency(day.mean), latency(day.slowest))
            for day in report.days
        ]
        show_table(("EARLIER DAY", "QUERIES", "MEAN", "SLOWEST"), days)
        echo()
        show_terms(report.day_terms)


def show_terms(terms: Sequence[QueryTermTimes]) -> None:
    now = display_time()
    rows = [
        (
            term.number,
            latency(term.mean),
            latency(term.slowest),
            relative_time(term.latest, now),
            printable(term.term),
        )
        for term in terms
    ]
    show_table(("QUERIES", "MEAN", "SLOWEST", "LATEST", "TERM"), rows)


def latency(number: float) -> str:
    """Milliseconds below ten seconds, else seconds."""
    return f"{number * 1000:.0f}ms" if number < 10 else f"{number:.1f}s"  # noqa: PLR2004
