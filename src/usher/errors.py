"""Every error Usher raises on purpose, in one tree.

    UsherError
    ├── BadInput            the caller's words are off
    │   ├── BadSetting      a setting is unknown or its value cannot be used
    │   └── UnsoundChunk    the checksum of an index chunk is right, and its content is not
    ├── NotFound            asked for something that is not there
    ├── NotAllowed          the role or token does not permit it
    ├── Conflict            it is otherwise already, and cannot be both
    ├── Unreachable         the database or a server does not answer
    ├── BadContent          a file is damaged, or not the one that was promised
    ├── DiskUnusable        a file cannot be written or read: no space, no permission, a broken disk
    ├── SchemaOutOfDate     the tables are older or newer than this program
    ├── MigrationFailed     a step of the schema could not be made or undone
    └── ServerUnusable      the embedded PostgreSQL cannot be made or started
        ├── NoServer        no PostgreSQL programs were found
        ├── DataUnusable    the data directory cannot be written, reached or is half-made
        └── WrongVersion    the data directory belongs to another major version

A judgement (a verdict, an outcome) is a value, never an exception: these mean "could not".
Each carries a stable code, an HTTP status, an exit code, and the next thing to try.
"""

from typing import ClassVar


class UsherError(Exception):
    """Something could not be done; says what, and what to do next."""

    code: ClassVar[str] = "failed"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(UsherError):
    code = "bad_input"
    status = 422
    exit_code = 2


class BadSetting(BadInput):
    code = "bad_setting"
    status = 500


class UnsoundChunk(BadInput):
    """Every copy of this file fails in the same way."""

    code = "unsound_chunk"


class NotFound(UsherError):
    code = "not_found"
    status = 404
    exit_code = 3


class NotAllowed(UsherError):
    code = "not_allowed"
    status = 403
    exit_code = 4


class Conflict(UsherError):
    code = "conflict"
    status = 409
    exit_code = 3


class Unreachable(UsherError):
    code = "unreachable"
    status = 503
    exit_code = 5


class BadContent(UsherError):
    code = "bad_content"
    status = 502


class DiskUnusable(UsherError):
    code = "disk_unusable"
    status = 507


class SchemaOutOfDate(UsherError):
    code = "schema_out_of_date"
    status = 503
    exit_code = 6


class MigrationFailed(UsherError):
    code = "migration_failed"


class ServerUnusable(UsherError):
    code = "server_unusable"
    status = 503


class NoServer(ServerUnusable):
    code = "no_server"


class DataUnusable(ServerUnusable):
    code = "data_unusable"


class WrongVersion(ServerUnusable):
    code = "wrong_version"


def errors_by_code() -> dict[str, type[UsherError]]:
    """Every error by its code, so that one process can pass an error on to another."""
    found: dict[str, type[UsherError]] = {}
    waiting: list[type[UsherError]] = [UsherError]
    while waiting:
        error = waiting.pop()
        found[error.code] = error
        waiting += error.__subclasses__()
    return found
