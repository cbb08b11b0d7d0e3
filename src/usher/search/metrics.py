"""Metrics of front-ends."""

from usher.telemetry import counter, gauge, histogram

SEARCHES = counter(
    "usher_search_total", "Searches, by result: complete, partial or unanswered.", "result"
)
# From 0, so that Prometheus sees the first of each.
for result in ("complete", "partial", "unanswered"):
    SEARCHES.labels(result)
SEARCH_SECONDS = histogram(
    "usher_search_seconds",
    "Time from a query to its result, including snippets.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
MORE_ROWS = counter(
    "usher_search_more_rows_total", "Rows that were queried because another was late or incomplete."
)
FAILURES = counter(
    "usher_search_failures_total",
    "Requests that an index server did not answer: away, late, busy or failed.",
    "why",
)
BROKEN = gauge(
    "usher_search_broken_servers",
    "Index servers of the map that get no queries because they did not answer.",
)
UNREPORTED = counter(
    "usher_search_unreported_total", "Queries whose statistics could not be reported to MGMT."
)
