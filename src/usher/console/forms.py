"""Reads the forms that browsers send, and refuses those without the CSRF token of the session."""

from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from usher.api.context import MgmtCall
from usher.errors import BadInput, NotAllowed
from usher.mgmt.console_sessions import is_form_token

MAX_FORM_FIELDS: Final = 100
CSRF_FIELD: Final = "csrf"


def parse_form(body: bytes) -> dict[str, str]:
    """The fields of a form; BadInput if it is malformed or names a field twice."""
    try:
        fields = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=MAX_FORM_FIELDS,
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput("The form cannot be read.", hint="Reload the page.") from error
    if len(dict(fields)) < len(fields):
        raise BadInput("The form has a field twice.", hint="Reload the page.")
    return dict(fields)


def read_form(call: MgmtCall[bytes]) -> dict[str, str]:
    """The fields of a form of a signed-in browser; NotAllowed without the CSRF token of its session.

    A caller that shows a token in a header needs none: pages of other sites cannot set that header.
    """
    if not call.caller.session:
        return parse_form(call.body)
    try:
        fields = parse_form(call.body)
    except BadInput as error:
        raise foreign_form() from error
    if not is_form_token(call.caller.session, fields.pop(CSRF_FIELD, "")):
        raise foreign_form()
    return fields


def foreign_form() -> NotAllowed:
    return NotAllowed("This form is not from your session.", hint="Open the page again.")


def local_path(text: str) -> str:
    """The text if it is a path of this server, else `/`: a link must not lead to another site."""
    parts = urlsplit(text)
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and not parts.netloc and text.isprintable() and "\\" not in text else "/"


def query_text(call: MgmtCall[Any], name: str) -> str:
    return call.request.query_params.get(name, "").strip()
