"""What every one of our servers answers alike: how it is, which version it is, what went wrong."""

from msgspec import Struct


class Status(Struct):
    status: str


class Version(Struct):
    usher: str
    python: str


class Problem(Struct, omit_defaults=True):
    """An error, as RFC 9457 wants it; `code` is for programs, `detail` and `hint` for people."""

    title: str
    status: int
    code: str
    detail: str
    request_id: str
    hint: str = ""
