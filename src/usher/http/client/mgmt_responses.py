"""MGMT's answers as messages, and its problems as errors."""

from typing import TypeVar

import msgspec

from usher.errors import BadInput, Conflict, NotAllowed, Unreachable, UsherError, errors_by_code
from usher.http.client.pool import HttpResponse
from usher.messages.server import Problem

AnswerT = TypeVar("AnswerT")
# For problems whose code is no error's.
ERRORS_BY_STATUS = {
    400: BadInput,
    401: NotAllowed,
    409: Conflict,
    413: BadInput,
    422: BadInput,
    503: Unreachable,
}


def decode_answer(response: HttpResponse, of: type[AnswerT]) -> AnswerT:
    """The body as a message; Unreachable if it is none, for then the server is no MGMT."""
    try:
        return msgspec.json.decode(response.body, type=of)
    except msgspec.MsgspecError as error:
        raise Unreachable(
            f"That was no answer of MGMT: {error}.", hint="Check the address, and its version."
        ) from error


def to_error(response: HttpResponse) -> UsherError:
    """The problem as the error that it would be here."""
    detail, code, hint = f"MGMT answered {response.status}.", "", ""
    try:
        problem = msgspec.json.decode(response.body, type=Problem)
        detail, code, hint = problem.detail, problem.code, problem.hint
    except msgspec.MsgspecError:
        pass  # a proxy answered
    kind = errors_by_code().get(code) or ERRORS_BY_STATUS.get(response.status, UsherError)
    return kind(detail, hint=hint)
