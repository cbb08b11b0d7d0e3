"""The environment variables of a job: which job it is, and the control database as `usher_worker` with its claim."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from usher.queue.jobs import ClaimedJob

URL_PARTS: Final = frozenset({"user", "password", "host", "port", "dbname", "options"})


def job_environment(job: ClaimedJob, dsn: str) -> dict[str, str]:
    """The variables of one run; without an address, the job cannot reach the database."""
    given = {
        "USHER_JOB_ID": str(job.id),
        "USHER_JOB_TYPE": job.type,
        "USHER_ATTEMPT": str(job.attempts),
        "USHER_CLAIM": str(job.claim),
        "USHER_CONTROL_URL": worker_url(dsn, job) if dsn else "",
        "USHER_TASK_ID": str(job.task_id or ""),
        "USHER_TASK_DATA": job.data or "",
    }
    return {name: value for name, value in given.items() if value}


def worker_url(dsn: str, job: ClaimedJob) -> str:
    """The control database as a URL that any language's driver reads, with the job's claim in the session."""
    return f"{url_prefix(dsn)}%20-c%20usher.job%3D{job.id}%20-c%20usher.claim%3D{job.claim}"


@lru_cache(16)
def url_prefix(dsn: str) -> str:
    """What is the same for all jobs; ends within the options."""
    given: dict[str, Any] = dict(conninfo_to_dict(dsn))
    options = [str(given.get("options") or ""), "-c TimeZone=UTC"]
    rest = {name: str(value) for name, value in given.items() if name not in URL_PARTS}
    host = str(given.get("host") or "")
    if (
        host.startswith("/") or "," in host
    ):  # a socket's directory or several servers fit no URL's host
        rest["host"], host = host, ""
        if given.get("port"):
            rest["port"] = str(given["port"])
    rest["options"] = " ".join(filter(None, options))
    database = quote(str(given.get("dbname") or ""))
    more = urlencode(rest, quote_via=quote)
    return f"postgresql://{user_info(given)}{host_and_port(host, given, rest)}/{database}?{more}"


def user_info(given: Mapping[str, Any]) -> str:
    if not given.get("user"):
        return ""
    password = f":{quote(str(given['password']), safe='')}" if given.get("password") else ""
    return f"{quote(str(given['user']), safe='')}{password}@"


def host_and_port(host: str, given: Mapping[str, Any], rest: Mapping[str, str]) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{given['port']}" if given.get("port") and "port" not in rest else name
