"""Whether a caller with a token, or none, may ask for what needs a scope."""

from usher.errors import NotAllowed
from usher.mgmt.tokens import Scope, Token
from usher.porch.entry import unproven


def check_scope(token: Token | None, scope: Scope, *, needed: bool) -> None:
    """Whether a caller with this token, or none, may ask for what needs that scope."""
    if token is None:
        if needed:
            raise unproven("A token is needed here.")
    elif not token.may(scope):
        raise NotAllowed(
            f"The token {token.name!r} is for {token.scope}; this needs {scope}.",
            hint=f"usher tokens add --scope {scope}",
        )
