"""Answers of MGMT as values, and what it declines as the error that it names."""

from typing import TypeVar

import msgspec

from usher.errors import BadInput, Conflict, NotAllowed, Unreachable, UsherError, errors_by_code
from usher.http.client.pool import HttpResponse
from usher.messages import Problem

T = TypeVar("T")
# Of problems that have no error of their own here.
KINDS = {
    400: BadInput,
    401: NotAllowed,
    409: Conflict,
    413: BadInput,
    422: BadInput,
    503: Unreachable,
}


def decode_answer(told: HttpResponse, of: type[T]) -> T:
    try:
        return msgspec.json.decode(told.body, type=of)
    except msgspec.MsgspecError as error:
        raise Unreachable(
            f"That was no answer of MGMT: {error}.", hint="Check the address, and its version."
        ) from error


def to_error(told: HttpResponse) -> UsherError:
    """What MGMT said, as the error it would be here."""
    try:
        problem = msgspec.json.decode(told.body, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem(f"MGMT answered {told.status}.")
    kind = errors_by_code().get(problem.code) or KINDS.get(told.status, UsherError)
    return kind(problem.detail, hint=problem.hint)
