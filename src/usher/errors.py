"""Every error that Usher raises on purpose.

    UsherError
    ├── BadInput            the input is invalid
    │   ├── BadSetting      a setting is unknown or its value is invalid
    │   └── UnsoundChunk    an index chunk has the right checksum but invalid content
    ├── NotFound            the requested object does not exist
    ├── NotAllowed          the role or token does not permit it
    ├── Conflict            the current state does not permit it
    ├── Unreachable         the database or a server does not respond
    │   ├── LateAnswer      OpenSearch did not answer in time; it may still process the request
    │   └── EngineBusy      OpenSearch has too much to do
    │       └── EngineInterrupted  a node of OpenSearch failed meanwhile, or no copy of a shard is available
    ├── IndexBlocked        OpenSearch does not accept changes, usually because its disks are nearly full
    ├── StoreUnusable       the object store refuses the credentials, or has no such bucket
    ├── BadContent          a file is damaged, or not the expected one
    ├── DiskUnusable        a file cannot be written or read: no space, no permission, a broken disk
    ├── SchemaOutOfDate     the tables are older or newer than this program
    ├── MigrationFailed     a migration could not be applied or undone
    └── ServerUnusable      the embedded PostgreSQL cannot be created or started
        ├── NoServer        no PostgreSQL programs were found
        ├── DataUnusable    the data directory is not writable, not reachable or incomplete
        │   └── ServerNotStarted  it did not start, or could not create its data directory
        └── WrongVersion    the data directory belongs to another major version

Verdicts and outcomes are values, not exceptions. Each error has a stable code, an HTTP status, an exit code, and a
hint with the next command to try.
"""

from typing import ClassVar


class UsherError(Exception):
    """What failed, and what to do next."""

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


class LateAnswer(Unreachable):
    code = "late_answer"


class EngineBusy(Unreachable):
    """A retry may succeed."""

    code = "engine_busy"


class IndexBlocked(UsherError):
    code = "index_blocked"
    status = 507


class EngineInterrupted(EngineBusy):
    code = "engine_interrupted"


class StoreUnusable(UsherError):
    code = "store_unusable"
    status = 503


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


class ServerNotStarted(DataUnusable):
    """The embedded PostgreSQL did not start, or could not create its data directory."""

    code = "server_not_started"


class WrongVersion(ServerUnusable):
    code = "wrong_version"


def errors_by_code() -> dict[str, type[UsherError]]:
    """Return every error by its code, so that one process can pass an error to another."""
    errors: dict[str, type[UsherError]] = {}
    pending: list[type[UsherError]] = [UsherError]
    while pending:
        error = pending.pop()
        errors[error.code] = error
        pending += error.__subclasses__()
    return errors
