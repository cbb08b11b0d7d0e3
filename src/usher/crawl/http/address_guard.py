"""Which addresses and ports the crawler may connect to.

`connect` checks the resolved address that it connects to, so DNS cannot change it after the check.
"""

from typing import Final

from usher.addresses import describe_special, parse_address
from usher.private_hosts import AllowList, HostPermission

# Ports that browsers block too: other services listen there, and some would execute a request as commands.
BAD_PORTS: Final = frozenset(
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95}
    | {101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179}
    | {389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601}
    | {636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566}
    | {6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
    | {0, 445, 1433, 2375, 3306, 3389, 5432, 6379, 11211, 27017}  # databases and the like
)


def refusal_reason(
    allowed: AllowList, host: str, address: str, port: int, permission: HostPermission | None = None
) -> str:
    """Return why the crawler must not connect to this address and port of a host; empty if it may.

    An item of `allow_private` opens a blocked port only if it names that port. A permission never does.
    """
    plain = parse_address(address)
    covering = [entry for entry in allowed.entries if entry.covers(host, plain, port)]
    if port in BAD_PORTS and not any(entry.port for entry in covering):
        return f"port {port} is not a web port"
    if covering or (permission is not None and permission.covers(host, plain, port)):
        return ""
    kind = describe_special(plain)
    return f"{address} is {kind}" if kind else ""


def permission_command(host: str, port: int) -> str:
    """Return the command that allows a private host."""
    name = f"[{host}]" if ":" in host else host
    scheme = "https" if port == 443 else "http"  # noqa: PLR2004 - of https
    place = name if port in (80, 443) else f"{name}:{port}"
    return f"to crawl it, run: usher add {scheme}://{place}/"
