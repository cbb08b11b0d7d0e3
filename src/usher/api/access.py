"""Who may call an endpoint of MGMT: every endpoint names its `AccessRule`, and `check` applies it.

| the caller shows | it may call |
|---|---|
| nothing | `open` endpoints, and `claim` endpoints, which check the claim in the body |
| nothing, on this machine | also `local` endpoints: those of components, and reading anything but jobs |
| a token for `read` | what needs `read` |
| a session of the console | pages, as its token; and the forms of the console, which hold the session's CSRF token |
| a token of a component | what names its type |
| a token for `admin`, or the data directory's secret | everything |
"""

from usher.errors import NotAllowed
from usher.http.server.endpoint import AccessRule
from usher.http.server.middleware import unauthorized
from usher.mgmt.component_names import ComponentType
from usher.mgmt.tokens import Token

CLAIM = AccessRule("claim")  # the body holds the claim of a running job, which its handler checks
ADMIN = AccessRule("admin")
READ = AccessRule("read", local=True, session=True)
# Jobs and tasks hold arguments: a local user without proof may not read them.
READ_QUEUE = AccessRule("read")
# The console: a browser signs in first, also on this machine.
CONSOLE_READ = AccessRule("read", session=True)
CONSOLE_ADMIN = AccessRule("admin", session=True)
MANAGER = AccessRule("work", frozenset({"manager"}))


def work(*types: ComponentType) -> AccessRule:
    """Access for components of these types, also without a token on this machine."""
    return AccessRule("work", frozenset(types), local=True)


def read_and(*types: ComponentType) -> AccessRule:
    """Access for readers and for components of these types."""
    return AccessRule("read", frozenset(types), local=True)


CRAWLER = work("crawler")
INDEX_SERVER = work("index-server")
FRONT_END = work("front-end")
MAP_READER = read_and("front-end", "index-server")


def check(access: AccessRule, token: Token | None, *, is_local: bool) -> None:
    """Raise unless a caller with this token, or with none, may call; `is_local` callers come from this machine."""
    if not access.needs_proof:
        return
    if token is None:
        if not (is_local and access.local):
            raise unauthorized("A token is needed here.")
    elif not permits(access, token):
        raise refusal(access, token)


def permits(access: AccessRule, token: Token) -> bool:
    """Whether this valid token suffices."""
    match token.scope:
        case "admin":
            return True
        case "read":
            return access.scope == "read"
        case "work" if token.type is None:  # a component of this machine, of any type
            return access.local
    return token.type in access.types


def refusal(access: AccessRule, token: Token) -> NotAllowed:
    option = f"--type {min(access.types)}" if access.types else f"--scope {access.scope}"
    return NotAllowed(
        f"The token {token.name!r} is for {token.type or token.scope}, which may not call this.",
        hint=f"usher tokens add {option}",
    )
