"""Metrics of front-ends."""

from prometheus_client import Counter, Gauge, Histogram

from usher.telemetry import REGISTRY

SEARCHES = Counter(
    "usher_search_total",
    "Searches, by result: complete, partial or unanswered.",
    ["result"],
    registry=REGISTRY,
)
SEARCH_SECONDS = Histogram(
    "usher_search_seconds",
    "Time from a query to its result, including snippets.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    registry=REGISTRY,
)
MORE_ROWS = Counter(
    "usher_search_more_rows_total",
    "Rows that were queried because another was late or incomplete.",
    registry=REGISTRY,
)
FAILURES = Counter(
    "usher_search_failures_total",
    "Requests that an index server did not answer: away, late, busy or failed.",
    ["why"],
    registry=REGISTRY,
)
BROKEN = Gauge(
    "usher_search_broken_servers",
    "Index servers of the map that get no queries because they did not answer.",
    registry=REGISTRY,
)
UNREPORTED = Counter(
    "usher_search_unreported_total",
    "Queries whose statistics could not be reported to MGMT.",
    registry=REGISTRY,
)
