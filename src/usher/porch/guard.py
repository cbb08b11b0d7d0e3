"""Who may ask a component that other machines can reach: whoever shows a token that MGMT knows.

Comes from requests; goes to MGMT, which alone has the tokens, with the token that was shown. Answers are remembered.
"""

import hmac
import time
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from usher.errors import BadInput, NotAllowed, Unreachable
from usher.porch.entry import unproven
from usher.porch.listen import Bind
from usher.wire import Lines

GOOD_SECONDS: Final = 60.0  # a token that is revoked is good for no longer
BAD_SECONDS: Final = 5.0
MOST: Final = 10_000  # remembered
MAX_SECRET: Final = 200
TIMEOUT: Final = 5.0
OK, UNPROVEN, FORBIDDEN = 200, 401, 403
ASKED: Final = "/get_servers_map"  # small, and open to every token there is


class Guard:
    """The token of the component itself is good too, so that its own kind needs no MGMT to be known."""

    def __init__(self, mgmt: str, token: str) -> None:
        parts = urlsplit(mgmt if "://" in mgmt else f"http://{mgmt}")
        if parts.scheme != "http" or not parts.hostname:
            raise BadInput(f"{mgmt!r} is not the address of MGMT.", hint="http://HOST:8411")
        self._lines = Lines(parts.hostname, parts.port or 80, timeout=TIMEOUT)
        self._host = parts.netloc.rpartition("@")[2]
        self._own = digest(token)
        self._known: dict[bytes, tuple[float, bool]] = {}

    def close(self) -> None:
        self._lines.close()

    async def check(self, secret: str) -> None:
        """Raises if this is nobody we know."""
        if not secret:
            raise unproven("A token is needed here.")
        key = digest(secret)
        if len(secret) <= MAX_SECRET and hmac.compare_digest(key, self._own):
            return
        if len(secret) > MAX_SECRET or not await self._good(key, secret):
            raise unproven("This token is not known, or was revoked.")

    async def _good(self, key: bytes, secret: str) -> bool:
        until, good = self._known.get(key, (0.0, False))
        if time.monotonic() < until:
            return good
        good = await self._ask(secret)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[key] = (time.monotonic() + (GOOD_SECONDS if good else BAD_SECONDS), good)
        return good

    async def _ask(self, secret: str) -> bool:
        headers = {"Host": self._host, "Authorization": f"Bearer {secret}"}
        answer = await self._lines.ask("GET", ASKED, b"", headers)
        if answer.status in (UNPROVEN, FORBIDDEN):
            return False
        if answer.status != OK:
            raise Unreachable(f"MGMT does not say whether a token is good: HTTP {answer.status}.")
        return True


def guard_for(bind: Bind, *, mgmt: str, token: str, insecure: bool) -> Guard | None:
    """None where nobody but this machine can ask, or everybody may; no token at all is refused."""
    if bind.loopback or insecure:
        return None
    if not token or not mgmt:
        raise NotAllowed(
            f"{bind} can be reached from other machines, and this component has no token.",
            hint="Make one with `usher tokens add`, bind to 127.0.0.1, or add --insecure.",
        )
    return Guard(mgmt, token)


def digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()
