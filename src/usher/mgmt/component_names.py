"""The names of components: reads all spellings of a host, a type or a state into one form."""

from ipaddress import IPv6Address
from typing import Final, Literal, get_args

from usher.errors import BadInput
from usher.mgmt.placement_rules import machine
from usher.urls import MAX_HOST, UrlRefusal, parse
from usher.wording import shortened

ComponentType = Literal["crawler", "index-builder", "index-server", "front-end", "manager"]
ComponentState = Literal["online", "waiting", "paused", "error"]
TYPES: Final[tuple[ComponentType, ...]] = get_args(ComponentType)
STATES: Final[tuple[ComponentState, ...]] = get_args(ComponentState)
MAX_TEXT: Final = 300
MAX_STORED_TEXT: Final = 200
MAX_REASON: Final = 500
WILDCARD_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - what cannot be reached
IDENTITY_HINT: Final = (
    "A component names itself by `host` in the body or the query, or by the header X-Usher-Host."
)
HOST_HINT: Final = "A name or an address with its port, such as 10.0.0.7:5000 or [fd00::7]:5000."


def host_of(text: str) -> str:
    """Read a name, IPv4 or IPv6 address with its port; the port 80 and `http://…/` are left out. Raises BadInput."""
    stripped = text.strip()
    if len(stripped) > MAX_TEXT:
        raise BadInput(f"A host has {MAX_HOST} characters at most.", hint=HOST_HINT)
    word, scheme, rest = stripped.partition("://")
    if scheme and word.lower() != "http":
        raise BadInput("Components are reached by http.", hint=HOST_HINT)
    bare = rest if scheme else stripped
    if bare.count(":") > 1 and not bare.startswith("["):
        bare = f"[{bare}]"
    url = parse(f"http://{bare}") if bare.strip("/") else UrlRefusal("bad_url", "It is empty.")
    if isinstance(url, UrlRefusal):
        raise BadInput(f"This is not the host of a component: {url.detail}", hint=HOST_HINT)
    if url.path != "/" or "#" in bare:
        raise BadInput("A component has a host and a port, and no path.", hint=HOST_HINT)
    return _reachable(url.host)


def _reachable(host: str) -> str:
    """The host, with IPv4 in IPv6 as IPv4; raises BadInput for an address that no other machine can reach."""
    name = machine(host)
    if name in WILDCARD_ADDRESSES:
        raise BadInput(
            f"{name} is where a component listens, not where others reach it.", hint=HOST_HINT
        )
    plain = IPv6Address(name).ipv4_mapped if host.startswith("[") else None
    return f"{plain}{host.partition(']')[2]}" if plain else host


def type_of(text: str) -> ComponentType:
    """Read a type; `Index Server`, `index_server` and `index-server` are the same."""
    name = "-".join(text.lower().replace("_", " ").replace("-", " ").split())
    for type_ in TYPES:
        if name == type_ or name == type_.replace("-", ""):
            return type_
    raise BadInput(
        f"{storable_text(text, 40)!a} is not a type of component.",
        hint=f"One of {', '.join(TYPES)}.",
    )


def state_of(text: str) -> ComponentState:
    """Read a state that a component may declare."""
    for state in STATES:
        if text == state:
            return state
    raise BadInput(
        f"{storable_text(text, 40)!a} is not a state of a component.",
        hint=f"One of {', '.join(STATES)}.",
    )


def storable_text(text: str, max_length: int = MAX_STORED_TEXT) -> str:
    """Shorten a text from outside, and replace what PostgreSQL cannot store."""
    return text[:max_length].encode("utf-8", "replace").decode().replace("\0", "")


def storable_reason(text: str) -> str:
    """A reason that can be stored, without its last words if it is long: often the end says what to do."""
    return storable_text(shortened(text, MAX_REASON), MAX_REASON)
