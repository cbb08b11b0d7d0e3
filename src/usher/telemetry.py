"""What the outside can see of a process: structured log lines and Prometheus metrics.

A log line is an event name and fields: `key=value` on a terminal, one JSON object a line otherwise.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from usher.terminal import escape_controls

T = TypeVar("T")
REGISTRY = CollectorRegistry()
"""Our own registry: a program that embeds Usher keeps its default one to itself."""

DB_SECONDS = Histogram(
    "usher_db_seconds",
    "Time a named statement took, by store and statement.",
    ["statement"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
    registry=REGISTRY,
)
DB_RECONNECTS = Counter(
    "usher_db_reconnects_total",
    "Times a lost database connection was made again.",
    registry=REGISTRY,
)
CLOCK_SKEW = Gauge(
    "usher_clock_skew_seconds",
    "How far this machine's clock is ahead of the database's.",
    registry=REGISTRY,
)
HTTP_REFUSED = Counter(
    "usher_http_refused_total",
    "HTTP connections closed for a request outside the limits, by status of the answer.",
    ["status"],
    registry=REGISTRY,
)
VERDICTS = Counter(
    "usher_door_verdicts_total",
    "URLs the door has judged, by reason.",
    ["reason"],
    registry=REGISTRY,
)

SCHEDULED_JOBS = Counter(
    "usher_queue_scheduled_total", "Jobs that the scheduler made of due tasks.", registry=REGISTRY
)
RETRIED_JOBS = Counter(
    "usher_queue_retried_total", "Jobs put back after a temporary error.", registry=REGISTRY
)
EXPIRED_LEASES = Counter(
    "usher_queue_leases_ended_total",
    "Runs taken back because their lease ended.",
    registry=REGISTRY,
)
WAITING_JOBS = Gauge(
    "usher_queue_waiting",
    "Jobs that could run now, by type, counted up to 10,000.",
    ["type"],
    registry=REGISTRY,
)
OLDEST_JOB_SECONDS = Gauge(
    "usher_queue_oldest_seconds",
    "How long the oldest job that could run waits.",
    ["type"],
    registry=REGISTRY,
)
JOB_RUNS = Counter(
    "usher_queue_runs_total",
    "Runs that ended, by type and the state of the job.",
    ["type", "state"],
    registry=REGISTRY,
)
RUNNING_JOBS = Gauge(
    "usher_queue_running", "Programs running under this manager.", ["type"], registry=REGISTRY
)
JOB_WAIT_SECONDS = Histogram(
    "usher_queue_waited_seconds",
    "Time from a job's due time to its claim.",
    ["type"],
    buckets=(0.01, 0.05, 0.2, 1, 5, 30, 300, 3600),
    registry=REGISTRY,
)
RUN_SECONDS = Histogram(
    "usher_queue_run_seconds",
    "Time a program ran.",
    ["type"],
    buckets=(0.01, 0.1, 1, 10, 60, 600, 3600),
    registry=REGISTRY,
)

CRAWLED_PAGES = Counter(
    "usher_crawl_pages_total",
    "Pages that a crawler visited, by result.",
    ["result"],
    registry=REGISTRY,
)
LINKS_FOUND = Counter(
    "usher_crawl_links_total",
    "Links that a crawler sent to the door, without those it had just sent.",
    registry=REGISTRY,
)

PINGS = Counter(
    "usher_mgmt_pings_total",
    "Pings of components, by result: good, bad or silent.",
    ["result"],
    registry=REGISTRY,
)
ROUND_SECONDS = Histogram(
    "usher_mgmt_round_seconds",
    "Time the watchdog took to look after everything once.",
    buckets=(0.01, 0.05, 0.2, 1, 2, 5, 20, 60),
    registry=REGISTRY,
)
COMPONENTS_BY_HEALTH = Gauge(
    "usher_mgmt_components",
    "Components by type and health, as the leading watchdog found them.",
    ["type", "health"],
    registry=REGISTRY,
)
LOST_CHUNKS = Counter(
    "usher_mgmt_lost_chunks_total",
    "Chunks to be crawled or built again because only a component that is gone had them.",
    ["type"],
    registry=REGISTRY,
)
MOVED_PLACEMENTS = Counter(
    "usher_mgmt_moved_seats_total", "Seats that moved to another server.", registry=REGISTRY
)
COMPACTED_CHUNKS = Counter(
    "usher_mgmt_compacted_chunks_total",
    "Chunks that left because nothing of them was left, and chunks made of others.",
    ["what"],
    registry=REGISTRY,
)
UNPLACED_CHUNKS = Gauge(
    "usher_mgmt_unseated",
    "Chunks without a seat in a row, counted up to 10,000.",
    ["row"],
    registry=REGISTRY,
)
UNLOADED_PLACEMENTS = Gauge(
    "usher_mgmt_unloaded",
    "Seats whose server has not loaded the chunk yet, counted up to 10,000.",
    ["row"],
    registry=REGISTRY,
)


class Log:
    """A room's logger: `log.info("migrated", schema="work", steps=3)`."""

    def __init__(self, room: str) -> None:
        self._logger = logging.getLogger(f"usher.{room}")

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
    """The task; if it fails, the log says so at once, also if its result is never awaited."""

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
    """A value as one word of a line: what holds a space, quote or control character as JSON."""
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain and text else json.dumps(text, ensure_ascii=False)


def set_up_logging(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Send this process' log lines to a stream; called once, by the command that starts it."""
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger("usher")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def metrics_text() -> bytes:
    """Every metric in Prometheus' text form."""
    return generate_latest(REGISTRY)
