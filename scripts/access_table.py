"""Prints docs/access.md: which callers may call which endpoint of MGMT, from the definitions of the endpoints."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from usher.api.access import check
from usher.api.context import MgmtEndpoint
from usher.api.openapi import with_document
from usher.api.server import OWN_ENDPOINTS
from usher.console.endpoints import ConsoleEndpoints
from usher.errors import NotAllowed
from usher.feeds.pages.databases import LazyDatabases
from usher.feeds.pages.endpoints import FeedEndpoints
from usher.http.server.endpoint import AccessRule
from usher.http.server.middleware import HttpError
from usher.mgmt.component_names import TYPES
from usher.mgmt.tokens import Token
from usher.settings import LoadedSettings, Settings

NOTHING, NOTHING_LOCALLY = "nothing", "nothing, on this machine"
COLUMNS = (NOTHING, NOTHING_LOCALLY, *TYPES, "read", "admin")
HEAD = """# Which token may call what

`make access` generates this page from the definitions of the endpoints. A test compares it with them and tries every
cell on a running MGMT. [security.md](security.md) explains tokens. Old names of an endpoint have the same access.

The columns are what the caller shows: nothing, from another machine or through a proxy; nothing, to an MGMT that
listens on loopback; the token of a component of that type; a token with the scope `read` or `admin`. The secret of the
data directory counts as `admin`. "claim" means that the body holds the claim of a running job, which is its proof.
"""


def main() -> None:
    endpoints = [endpoint for endpoint in all_endpoints() if not endpoint.old]
    print(HEAD)
    print(f"| endpoint | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for endpoint in sorted(endpoints, key=lambda each: (each.path, each.method)):
        cells = " | ".join(cell(endpoint.access, column) for column in COLUMNS)
        print(f"| `{endpoint.method} {endpoint.path}` | {cells} |")


def all_endpoints() -> Sequence[MgmtEndpoint]:
    console = ConsoleEndpoints(LoadedSettings(Settings(), {}, None, {})).endpoints()
    feeds = FeedEndpoints(LazyDatabases(Settings(), AsyncExitStack())).endpoints()
    return with_document((*OWN_ENDPOINTS, *console, *feeds))


def cell(access: AccessRule, column: str) -> str:
    try:
        check(access, token_of(column), is_local=column == NOTHING_LOCALLY)
    except (HttpError, NotAllowed):
        return ""
    return "claim" if access.scope == "claim" else "yes"


def token_of(column: str) -> Token | None:
    now = datetime.now(UTC)
    if column in ("read", "admin"):
        return Token(1, column, column, None, None, now, None, None, None)
    for kind in TYPES:
        if kind == column:
            return Token(1, column, "work", kind, None, now, None, None, None)
    return None


if __name__ == "__main__":
    main()
