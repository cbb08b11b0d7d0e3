"""Structured log lines and Prometheus metrics.

A log line is an event name and fields: `key=value` on a terminal, else one JSON object per line.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    Summary,
    generate_latest,
)

from usher.terminal import escape_controls

T = TypeVar("T")
REGISTRY = CollectorRegistry()
"""A registry of our own: a program that embeds Usher keeps the default one."""


def counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(name, text, labels, buckets=buckets, registry=REGISTRY)


# Number and total only: buckets for each statement were nine tenths of all lines.
DB_SECONDS = Summary(
    "usher_db_seconds", "Duration of a named statement.", ("statement",), registry=REGISTRY
)
DB_RECONNECTS = counter(
    "usher_db_reconnects_total", "Lost database connections that were replaced."
)
CLOCK_SKEW = gauge(
    "usher_clock_skew_seconds", "How far this machine's clock is ahead of the database's."
)
HTTP_REFUSED = counter(
    "usher_http_refused_total",
    "HTTP connections closed because of a request outside the limits, by response status.",
    "status",
)
VERDICTS = counter(
    "usher_door_verdicts_total", "URLs that the door has judged, by reason.", "reason"
)

SCHEDULED_JOBS = counter(
    "usher_queue_scheduled_total", "Jobs that the scheduler created from due tasks."
)
RETRIED_JOBS = counter("usher_queue_retried_total", "Jobs to be retried after a temporary error.")
EXPIRED_LEASES = counter(
    "usher_queue_leases_ended_total", "Runs that ended because their lease expired."
)
WAITING_JOBS = gauge(
    "usher_queue_waiting", "Jobs that could run now, by type, counted up to 10,000.", "type"
)
OLDEST_JOB_SECONDS = gauge(
    "usher_queue_oldest_seconds", "Waiting time of the oldest job that could run now.", "type"
)
JOB_RUNS = counter(
    "usher_queue_runs_total", "Runs that ended, by type and job state.", "type", "state"
)
RUNNING_JOBS = gauge("usher_queue_running", "Programs that this manager runs.", "type")
JOB_WAIT_SECONDS = histogram(
    "usher_queue_waited_seconds",
    "Time from a job's due time to its claim.",
    "type",
    buckets=(0.01, 0.05, 0.2, 1, 5, 30, 300, 3600),
)
RUN_SECONDS = histogram(
    "usher_queue_run_seconds",
    "Duration of a program.",
    "type",
    buckets=(0.01, 0.1, 1, 10, 60, 600, 3600),
)

CRAWLED_PAGES = counter(
    "usher_crawl_pages_total", "Pages that a crawler visited, by result.", "result"
)
UPLOADED_CHUNKS = counter(
    "usher_store_uploaded_total", "Chunk files that this component uploaded.", "kind"
)
UPLOAD_FAILURES = counter(
    "usher_store_upload_failures_total", "Failed uploads of chunk files, which are retried.", "kind"
)
ARCHIVED_FILES = counter(
    "usher_archive_files_total", "WARC files that this crawler copied to the archive."
)
ARCHIVE_WAITING = gauge(
    "usher_archive_waiting", "WARC files of this crawler that wait for the archive."
)
DELETED_OBJECTS = counter(
    "usher_store_deleted_total", "Chunk files that the watchdog deleted from the object store."
)
LINKS_FOUND = counter(
    "usher_crawl_links_total", "Links that a crawler sent to the door, without recent repetitions."
)

PINGS = counter(
    "usher_mgmt_pings_total", "Pings of components, by result: good, bad or silent.", "result"
)
ROUND_SECONDS = histogram(
    "usher_mgmt_round_seconds",
    "Duration of a round of the watchdog.",
    buckets=(0.01, 0.05, 0.2, 1, 2, 5, 20, 60),
)
COMPONENTS_BY_HEALTH = gauge(
    "usher_mgmt_components",
    "Components by type and health, as seen by the leading watchdog.",
    "type",
    "health",
)
LOST_CHUNKS = counter(
    "usher_mgmt_lost_chunks_total",
    "Chunks to be crawled or built again because only a lost component had them.",
    "type",
)
MOVED_PLACEMENTS = counter(
    "usher_mgmt_moved_seats_total", "Placements that moved to another server."
)
COMPACTED_CHUNKS = counter(
    "usher_mgmt_compacted_chunks_total",
    "Chunks that compaction removed, and chunks that it merged from others.",
    "what",
)
UNPLACED_CHUNKS = gauge(
    "usher_mgmt_unseated", "Chunks without a placement in a row, counted up to 10,000.", "row"
)
UNLOADED_PLACEMENTS = gauge(
    "usher_mgmt_unloaded",
    "Placements whose server has not loaded the chunk yet, counted up to 10,000.",
    "row",
)


class Log:
    """The logger of one area: `log.info("migrated", schema="work", steps=3)`."""

    def __init__(self, area: str) -> None:
        self._logger = logging.getLogger(f"usher.{area}")

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        self._logger.log(level, event, extra={"fields": fields})


def log_failure(task: "asyncio.Task[T]", log: Log) -> "asyncio.Task[T]":
    """Return the task; its failure is logged at once, also if its result is never awaited."""

    def report(done: "asyncio.Task[T]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("task_failed", task=done.get_name(), error=repr(error))

    task.add_done_callback(report)
    return task


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        words = [time, record.levelname.lower(), record.getMessage()]
        words += [f"{key}={quoted(value)}" for key, value in fields_of(record).items()]
        if record.exc_info:
            words.append("\n" + self.formatException(record.exc_info))
        return escape_controls(" ".join(words))


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix("usher."),
            "event": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return escape_controls(json.dumps(line, default=str, ensure_ascii=False))


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


def quoted(value: object) -> str:
    """Return a value as one word; JSON if it has a space, a quote or a control character."""
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain and text else json.dumps(text, ensure_ascii=False)


class LogStream(Protocol):
    """Where log lines go."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...

    def isatty(self) -> bool: ...


def set_up_logging(*, level: str, form: str, stream: LogStream | None = None) -> None:
    """Send the log lines of this process to a stream; each command calls this once."""
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger("usher")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class SamplesForScrapes(CollectorRegistry):
    """The metrics of the registry without the time at which each series began, which no dashboard uses."""

    def collect(self) -> Iterable[Metric]:
        for metric in REGISTRY.collect():
            metric.samples = [item for item in metric.samples if not item.name.endswith("_created")]
            yield metric


def metrics_text() -> bytes:
    """Return every metric in Prometheus' text format."""
    return generate_latest(SamplesForScrapes())
