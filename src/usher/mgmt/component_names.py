"""How components are named: every way to write a host or a type, read to one form.

Comes from components and operators; goes to work.component and to whoever connects to the component.
"""

from ipaddress import IPv6Address
from typing import Final, Literal, get_args

from usher.errors import BadInput
from usher.mgmt.placement_rules import machine
from usher.urls import MAX_HOST, UrlRefusal, parse

ComponentType = Literal["crawler", "index-builder", "index-server", "front-end", "manager"]
ComponentState = Literal["online", "waiting", "paused", "error"]
TYPES: Final[tuple[ComponentType, ...]] = get_args(ComponentType)
STATES: Final[tuple[ComponentState, ...]] = get_args(ComponentState)
MAX_TEXT: Final = 300
MAX_STORED_TEXT: Final = 200
WILDCARD_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - what cannot be reached
IDENTITY_HINT: Final = (
    "A component names itself by `host` in the body or the query, or by the header X-Usher-Host."
)
HOST_HINT: Final = "A name or an address with its port, such as 10.0.0.7:5000 or [fd00::7]:5000."


def host_of(text: str) -> str:
    """A name, IPv4 or IPv6 address, with its port unless that is 80; `http://h:5000/` is read as well."""
    given = text.strip()
    if len(given) > MAX_TEXT:
        raise BadInput(f"A host has {MAX_HOST} characters at most.", hint=HOST_HINT)
    word, scheme, rest = given.partition("://")
    if scheme and word.lower() != "http":
        raise BadInput("Components are reached by http.", hint=HOST_HINT)
    bare = rest if scheme else given
    if bare.count(":") > 1 and not bare.startswith("["):
        bare = f"[{bare}]"
    url = parse(f"http://{bare}") if bare.strip("/") else UrlRefusal("bad_url", "It is empty.")
    if isinstance(url, UrlRefusal):
        raise BadInput(f"This is not the host of a component: {url.detail}", hint=HOST_HINT)
    if url.path != "/" or "#" in bare:
        raise BadInput("A component has a host and a port, and no path.", hint=HOST_HINT)
    return _reachable(url.host)


def _reachable(host: str) -> str:
    """The host, IPv4 in its own form; refused if nobody else could mean the same by it."""
    name = machine(host)
    if name in WILDCARD_ADDRESSES:
        raise BadInput(
            f"{name} is where a component listens, not where others reach it.", hint=HOST_HINT
        )
    plain = IPv6Address(name).ipv4_mapped if host.startswith("[") else None
    return f"{plain}{host.partition(']')[2]}" if plain else host


def type_of(text: str) -> ComponentType:
    """`Index Server`, `index_server` and `index-server` are the same."""
    given = "-".join(text.lower().replace("_", " ").replace("-", " ").split())
    for known in TYPES:
        if given == known or given == known.replace("-", ""):
            return known
    raise BadInput(
        f"{storable_text(text, 40)!a} is no type of component.", hint=f"One of {', '.join(TYPES)}."
    )


def state_of(text: str) -> ComponentState:
    """What a component may declare."""
    for known in STATES:
        if text == known:
            return known
    raise BadInput(
        f"{storable_text(text, 40)!a} is no state to declare.", hint=f"One of {', '.join(STATES)}."
    )


def storable_text(text: str, most: int = MAX_STORED_TEXT) -> str:
    """A text from outside as the database can hold it."""
    return text[:most].encode("utf-8", "replace").decode().replace("\0", "")
