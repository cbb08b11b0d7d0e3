"""Sessions of browsers in the console: opened with a token, or with a link that works once and on this machine only.

Usher keeps only a hash of each secret in work.console_session. A session ends after SESSION_LIFETIME, with its token,
or when the operator signs out.
"""

import hmac
import secrets
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt.tokens import MAX_SECRET, SECRET_BYTES, Token, digest

store = load_statements(__file__)
SESSION_LIFETIME: Final = timedelta(hours=12)
LINK_LIFETIME: Final = timedelta(minutes=5)
MAX_SESSIONS: Final = 1_000
OPERATOR_NAME: Final = "operator of this machine"


async def add_session(conn: Connection, token: Token, *, now: datetime) -> str:
    """Open a session for this token and return its secret, which is stored nowhere."""
    return await add_row(conn, "session", None if token.is_local else token.id, now=now)


async def add_link(conn: Connection, *, now: datetime) -> str:
    """Return the secret of a link that opens one session of the operator."""
    return await add_row(conn, "link", None, now=now)


async def add_row(
    conn: Connection, kind: Literal["link", "session"], token_id: int | None, *, now: datetime
) -> str:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    lifetime = LINK_LIFETIME if kind == "link" else SESSION_LIFETIME
    await store.delete_ended.run(conn, now=now, keep=MAX_SESSIONS - 1)
    await store.add_row.run(
        conn, hash=digest(secret), kind=kind, token=token_id, lifetime=lifetime, now=now
    )
    return secret


async def use_link(conn: Connection, secret: str, *, now: datetime) -> bool:
    """Use up a link; False if it is unknown, was used or has expired."""
    if not 0 < len(secret) <= MAX_SECRET:
        return False
    return bool(await store.use_link.tuples(conn, hash=digest(secret), now=now))


async def check_session(conn: Connection, secret: str, *, now: datetime) -> Token | None:
    """The token behind a session; None if the session or its token has ended."""
    if not 0 < len(secret) <= MAX_SECRET:
        return None
    return await store.check_session.row(
        conn, Token, hash=digest(secret), operator=OPERATOR_NAME, now=now
    )


async def end_session(conn: Connection, secret: str) -> None:
    await store.end_session.run(conn, hash=digest(secret))


def form_token(secret: str) -> str:
    """The CSRF token of a session, which every form holds: pages of other sites cannot read it."""
    return hmac.digest(secret.encode("utf-8", "replace"), b"console form", sha256).hex()


def is_form_token(secret: str, given: str) -> bool:
    return hmac.compare_digest(form_token(secret).encode(), given.encode("utf-8", "replace"))
