"""The database login of jobs: `usher_worker` with its own password, or none."""

from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from usher.db.pool import Connection, connect
from usher.db.statements import load_statements
from usher.errors import BadSetting, Unreachable
from usher.schema.roles import WORKER, set_password, worker_password
from usher.telemetry import Log

store = load_statements(__file__)
log = Log("queue")

# Parameters of the manager's connection that jobs get: the server's address and how to verify it.
SHARED_PARAMETERS: Final = frozenset(
    [
        *["host", "hostaddr", "port", "dbname", "sslmode", "sslrootcert", "sslcrl"],
        *["channel_binding", "connect_timeout", "target_session_attrs"],
    ]
)
HINT: Final = (
    "Set worker_url to an address that logs in as usher_worker; the HTTP API works without it."
)


async def worker_dsn(manager_dsn: str, worker_url: str = "") -> str:
    """Return a DSN that logs in as usher_worker; empty, with a warning in the log, if there is none."""
    if worker_url:
        return await checked_worker_url(worker_url)
    async with await connect(manager_dsn) as conn:
        try:
            password = await worker_password(conn)
        except psycopg.errors.InsufficientPrivilege:
            return log_missing_login(
                "the manager's database user may not read control.worker_login"
            )
        dsn = make_conninfo(**shared_parameters(conn), user=WORKER, password=password)
        refusal = await login_refusal(dsn)
        if refusal and await try_to_set_password(conn):
            refusal = await login_refusal(dsn)
    return log_missing_login(refusal) if refusal else dsn


async def checked_worker_url(worker_url: str) -> str:
    """Return the operator's DSN; BadSetting if it logs in as another user than usher_worker."""
    async with await connect(worker_url) as conn:
        [user] = await store.login_user.column(conn)
    if user != WORKER:
        raise BadSetting(
            f"worker_url logs in as {user}, so that jobs could do all that {user} may do.",
            hint=f"postgresql://{WORKER}:PASSWORD@… with the password of `usher db roles create --passwords`",
        )
    return worker_url


def log_missing_login(reason: str) -> str:
    """Log why jobs have no database, and return the empty DSN."""
    log.warning("jobs_without_database", reason=reason, hint=HINT)
    return ""


def shared_parameters(conn: Connection) -> dict[str, str]:
    """Return the SHARED_PARAMETERS of this connection, from its DSN or from PG* variables."""
    used = {option.keyword.decode(): option.val for option in conn.pgconn.info}
    return {
        name: value.decode() for name, value in used.items() if value and name in SHARED_PARAMETERS
    }


async def login_refusal(dsn: str) -> str:
    """Return why this DSN cannot log in with a password; empty if it can."""
    try:
        async with await connect(dsn) as conn:
            used_password = conn.pgconn.used_password
    except Unreachable as error:
        return error.message
    # Where the server trusts this machine, a job could log in as any role by changing the user in its URL.
    return (
        ""
        if used_password
        else "the server lets usher_worker in without a password (see its pg_hba.conf)"
    )


async def try_to_set_password(conn: Connection) -> bool:
    """Set the password of the role; return False if this user may not."""
    try:
        await set_password(conn, WORKER)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject):
        return False
    return True
