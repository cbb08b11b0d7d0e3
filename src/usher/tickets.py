"""Tickets: short-lived permits that MGMT signs and one component accepts.

A component calls another one with a ticket, never with its token. A ticket names its audience (the component that
accepts it), the token of its bearer, the permitted actions and its expiry. Every component has a key of its own, so a
component that leaks or misuses its key can forge tickets for itself only.

    key = audience_key(secret_of_mgmt, "10.0.0.7:8421")
    text = sign(Ticket("10.0.0.7:8421", 12, ("content",), expires=1_800_000_000), key)
    verify(text, key, "10.0.0.7:8421")
"""

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final, Literal, get_args

import msgspec

PREFIX: Final = "ut1."
MAX_TICKET_LENGTH: Final = 1_000
LIFETIME_SECONDS: Final = 600
# What a component serves: crawled pages, index chunks, results of queries.
Action = Literal["content", "index", "query"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a ticket; `expires` is in seconds since 1970 by the clock of the database."""

    audience: str
    token_id: int
    actions: tuple[Action, ...]
    expires: float


def audience_key(secret: bytes, audience: str) -> bytes:
    """The key that signs and verifies the tickets for one component."""
    return hmac.digest(secret, b"ticket key of " + audience.encode(), sha256)


def sign(ticket: Ticket, key: bytes) -> str:
    payload = urlsafe_b64encode(msgspec.json.encode(ticket))
    return f"{PREFIX}{payload.decode()}.{_signature(payload, key)}"


def verify(text: str, key: bytes, audience: str) -> Ticket | None:
    """The ticket, or None if this key did not sign it for this audience; the caller checks the expiry."""
    if not text.startswith(PREFIX) or len(text) > MAX_TICKET_LENGTH or not text.isascii():
        return None
    payload, _, signature = text.removeprefix(PREFIX).partition(".")
    if not hmac.compare_digest(signature, _signature(payload.encode(), key)):
        return None
    try:
        ticket = msgspec.json.decode(urlsafe_b64decode(payload), type=Ticket)
    except (msgspec.MsgspecError, binascii.Error):
        return None
    return ticket if ticket.audience == audience else None


def _signature(payload: bytes, key: bytes) -> str:
    return urlsafe_b64encode(hmac.digest(key, payload, sha256)).decode().rstrip("=")
