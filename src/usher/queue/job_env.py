"""The environment variables of a job: which job it is, and its login to the control database."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from usher.queue.jobs import ClaimedJob

URL_PARTS: Final = frozenset({"user", "password", "host", "port", "dbname", "options"})


def job_environment(job: ClaimedJob, dsn: str) -> dict[str, str]:
    """Return the variables of one run. Without a DSN, the job has no access to the database."""
    variables = {
        "USHER_JOB_ID": str(job.id),
        "USHER_JOB_TYPE": job.type,
        "USHER_ATTEMPT": str(job.attempts),
        "USHER_CLAIM": str(job.claim),
        "USHER_CONTROL_URL": worker_url(dsn, job) if dsn else "",
        "USHER_TASK_ID": str(job.task_id or ""),
        "USHER_TASK_DATA": job.data or "",
    }
    return {name: value for name, value in variables.items() if value}


def worker_url(dsn: str, job: ClaimedJob) -> str:
    """Return the control database as a URL that drivers of any language read, with the job's claim in the session."""
    return f"{url_prefix(dsn)}%20-c%20usher.job%3D{job.id}%20-c%20usher.claim%3D{job.claim}"


@lru_cache(16)
def url_prefix(dsn: str) -> str:
    """Return the part of the URL that all jobs share; it ends inside the options."""
    parameters: dict[str, Any] = dict(conninfo_to_dict(dsn))
    query = {name: str(value) for name, value in parameters.items() if name not in URL_PARTS}
    host = str(parameters.get("host") or "")
    if host.startswith("/") or "," in host:  # a socket directory or a list fits no URL's host
        query["host"], host = host, ""
        if parameters.get("port"):
            query["port"] = str(parameters["port"])
    options = [str(parameters.get("options") or ""), "-c TimeZone=UTC"]
    query["options"] = " ".join(filter(None, options))
    database = quote(str(parameters.get("dbname") or ""))
    server = f"{user_info(parameters)}{host_and_port(host, parameters, query)}"
    return f"postgresql://{server}/{database}?{urlencode(query, quote_via=quote)}"


def user_info(parameters: Mapping[str, Any]) -> str:
    """Return `user:password@`; empty without a user."""
    if not parameters.get("user"):
        return ""
    password = (
        f":{quote(str(parameters['password']), safe='')}" if parameters.get("password") else ""
    )
    return f"{quote(str(parameters['user']), safe='')}{password}@"


def host_and_port(host: str, parameters: Mapping[str, Any], query: Mapping[str, str]) -> str:
    """Return `host:port`, without a port that the query names."""
    name = f"[{host}]" if ":" in host else host
    port = parameters.get("port")
    return f"{name}:{port}" if port and "port" not in query else name
