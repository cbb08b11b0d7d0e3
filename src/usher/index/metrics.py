"""Metrics of builders and index servers."""

from prometheus_client import Counter, Gauge, Histogram

from usher.telemetry import REGISTRY

BUILT = Counter(
    "usher_index_built_total",
    "Chunks that a builder processed, by result: built or failed.",
    ["result"],
    registry=REGISTRY,
)
BUILT_DOCUMENTS = Counter(
    "usher_index_built_documents_total", "Documents in built chunks.", registry=REGISTRY
)
LEFT_OUT = Counter(
    "usher_index_left_out_total",
    "Pages of built chunks without a document: unchanged, not fetched, noindex, or unreadable.",
    ["reason"],
    registry=REGISTRY,
)
FOREIGN = Counter(
    "usher_index_foreign_pages_total",
    "Pages and documents that were dropped because they do not belong to their chunk.",
    registry=REGISTRY,
)
LOADED = Counter("usher_index_loaded_total", "Chunks that a server loaded.", registry=REGISTRY)
NOT_LOADED = Counter(
    "usher_index_not_loaded_total",
    "Attempts to load a chunk that failed because it was unavailable or damaged.",
    registry=REGISTRY,
)
RETIRED = Counter(
    "usher_index_retired_total", "Outdated copies of pages that were removed.", registry=REGISTRY
)
DOCUMENTS = Gauge("usher_index_documents", "Searchable documents.", registry=REGISTRY)
ASKED = Counter(
    "usher_index_asked_total",
    "Requests to a server, by kind and result: answered, late, busy or failed.",
    ["kind", "result"],
    registry=REGISTRY,
)
ANSWER_SECONDS = Histogram(
    "usher_index_answer_seconds",
    "Time from a request to its response, by kind.",
    ["kind"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
    registry=REGISTRY,
)
KNOWN_REASONS = frozenset(
    {"unchanged", "not fetched", "noindex", "no text", "not reported as fetched"}
)


def count_skipped(reasons: dict[str, int]) -> None:
    """Count skipped pages; unknown reasons share one label because labels are never freed."""
    for reason, number in reasons.items():
        LEFT_OUT.labels(reason if reason in KNOWN_REASONS else "unreadable").inc(number)
