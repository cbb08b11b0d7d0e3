"""The cookie that holds the session of a browser, and the redirect of browsers without a session to `/login`."""

import re
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from usher.http.server.middleware import HttpError
from usher.mgmt.console_sessions import SESSION_LIFETIME

PORT: Final = re.compile(r":(\d{1,5})$")
LOGIN_PATH: Final = "/login"
MAX_NEXT_CHARACTERS: Final = 2_000


def cookie_name(request: Request) -> str:
    """Browsers share cookies between the ports of a host, so the name contains the port."""
    port = PORT.search(request.headers.get("host", ""))
    return f"usher_session_{port[1] if port else 'default'}"


def session_cookie(request: Request) -> str:
    """The secret of the session that the browser sent; empty if it has none."""
    return request.cookies.get(cookie_name(request), "")


def set_session(response: Response, request: Request, secret: str) -> None:
    """Let the browser send the secret; an empty secret ends that."""
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(SESSION_LIFETIME.total_seconds()) if secret else 0,
        httponly=True,
        samesite="strict",
        secure=is_secure(request),
    )


def is_secure(request: Request) -> bool:
    """Whether the browser uses TLS, to this server or to a proxy before it."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def redirect_to_login(request: Request) -> None:
    """Raise a redirect if a browser asks for a page; it returns to the page after the sign-in."""
    accept = request.headers.get("accept", "")
    if request.method not in ("GET", "HEAD") or not accepts_html(accept):
        return
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = f"?next={quote(path, safe='')}" if 1 < len(path) <= MAX_NEXT_CHARACTERS else ""
    raise HttpError(303, "sign_in", "Sign in first.", headers={"Location": f"{LOGIN_PATH}{query}"})


def accepts_html(accept: str) -> bool:
    """Whether an Accept header names HTML, as those of browsers do."""
    types = [part.partition(";") for part in accept.lower().split(",")]
    return any(
        type_.strip() in ("text/html", "application/xhtml+xml") and not has_zero_weight(parameters)
        for type_, _, parameters in types
    )


def has_zero_weight(parameters: str) -> bool:
    """Whether the parameters of a type contain `q=0`, which excludes it."""
    names = (parameter.strip() for parameter in parameters.split(";"))
    return any(name.startswith("q=") and name[2:].strip("0.") == "" for name in names)
