"""The work behind `usher stats`: what was searched for, read and told in lines.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from usher.cli.app import App, show_field, show_json, show_table
from usher.cli.area_access import mgmt_transaction
from usher.cli.output import echo
from usher.cli.queue_access import parse_since, relative_time
from usher.cli.wording import display_time, json_fields, printable
from usher.db.clock import server_time
from usher.mgmt import queries as look
from usher.mgmt.queries import MAX_QUERIES, QueryDay, QueryTerm, QueryTimes


@dataclass(frozen=True, slots=True)
class QueryReport:
    """Single queries with their terms, and the sums of earlier days with theirs."""

    queries: QueryTimes
    terms: list[QueryTerm]
    days: list[QueryDay]
    day_terms: list[QueryTerm]


async def read_queries(app: App, since: str, limit: int) -> QueryReport:
    async with mgmt_transaction(app) as conn:
        moment = parse_since(since, await server_time(conn))
        return QueryReport(
            queries=await look.queries(conn, since=moment),
            terms=await look.terms(conn, since=moment, n=limit),
            days=await look.query_days(conn, since=moment),
            day_terms=await look.query_day_terms(conn, since=moment, n=limit),
        )


def show_queries(report: QueryReport, *, as_json: bool) -> None:
    queries = report.queries
    if as_json:
        lists = {
            "terms": [json_fields(asdict(term)) for term in report.terms],
            "earlier_days": [json_fields(asdict(day)) for day in report.days],
            "earlier_terms": [json_fields(asdict(term)) for term in report.day_terms],
        }
        show_json({**asdict(queries), **lists})
        return
    more = ", the last of them" if queries.number >= MAX_QUERIES else ""
    show_field("queries", f"{queries.number}{more}")
    if queries.number:
        show_field(
            "time", f"median {duration_text(queries.median)}, mean {duration_text(queries.mean)}"
        )
        show_field(
            "",
            f"95 % within {duration_text(queries.p95)}, slowest {duration_text(queries.slowest)}",
        )
        echo()
        show_terms(report.terms)
    if report.days:
        echo()
        days = [
            (f"{day.day}", day.number, duration_text(day.mean), duration_text(day.slowest))
            for day in report.days
        ]
        show_table(("EARLIER DAY", "QUERIES", "MEAN", "SLOWEST"), days)
        echo()
        show_terms(report.day_terms)


def show_terms(terms: Sequence[QueryTerm]) -> None:
    now = display_time()
    rows = [
        (
            one.number,
            duration_text(one.mean),
            duration_text(one.slowest),
            relative_time(one.latest, now),
            printable(one.term),
        )
        for one in terms
    ]
    show_table(("QUERIES", "MEAN", "SLOWEST", "LATEST", "TERM"), rows)


def duration_text(number: float) -> str:
    """In milliseconds up to ten seconds."""
    return f"{number * 1000:.0f}ms" if number < 10 else f"{number:.1f}s"  # noqa: PLR2004
