"""What every Usher server answers: status, version, problem."""

from msgspec import Struct


class Status(Struct):
    status: str


class Version(Struct):
    usher: str
    python: str


class Problem(Struct, omit_defaults=True):
    """An error as in RFC 9457; `code` is for programs, `detail` and `hint` are for people."""

    title: str
    status: int
    code: str
    detail: str
    request_id: str
    hint: str = ""
