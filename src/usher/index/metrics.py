"""Metrics of builders and index servers."""

from usher.telemetry import counter, gauge, histogram

BUILT = counter(
    "usher_index_built_total",
    "Chunks that a builder processed, by result: built or failed.",
    "result",
)
BUILT_DOCUMENTS = counter("usher_index_built_documents_total", "Documents in built chunks.")
LEFT_OUT = counter(
    "usher_index_left_out_total",
    "Pages of built chunks without a document: unchanged, not fetched, noindex, or unreadable.",
    "reason",
)
FOREIGN = counter(
    "usher_index_foreign_pages_total",
    "Pages and documents that were dropped because they do not belong to their chunk.",
)
LOADED = counter("usher_index_loaded_total", "Chunks that a server loaded.")
NOT_LOADED = counter(
    "usher_index_not_loaded_total",
    "Attempts to load a chunk that failed because it was unavailable or damaged.",
)
RETIRED = counter("usher_index_retired_total", "Outdated copies of pages that were removed.")
DOCUMENTS = gauge("usher_index_documents", "Searchable documents.")
ASKED = counter(
    "usher_index_asked_total",
    "Requests to a server, by kind and result: answered, late, busy or failed.",
    "kind",
    "result",
)
ANSWER_SECONDS = histogram(
    "usher_index_answer_seconds",
    "Time from a request to its response, by kind.",
    "kind",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
)
ENGINE_FAILURES = counter(
    "usher_index_engine_failures_total",
    "Requests to OpenSearch that failed: away, late, busy or refused.",
    "why",
)
ENGINE_RETRIES = counter(
    "usher_index_engine_retries_total",
    "Documents that were sent to OpenSearch again because it was busy or a shard was unavailable.",
)
ENGINE_PARTIAL = counter(
    "usher_index_engine_partial_total", "Searches that OpenSearch answered without all shards."
)
KNOWN_REASONS = frozenset(
    {"unchanged", "not fetched", "noindex", "no text", "not reported as fetched"}
)


def count_skipped(reasons: dict[str, int]) -> None:
    """Count skipped pages; unknown reasons share one label because labels are never freed."""
    for reason, number in reasons.items():
        LEFT_OUT.labels(reason if reason in KNOWN_REASONS else "unreadable").inc(number)
