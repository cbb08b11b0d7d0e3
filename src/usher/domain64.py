"""The number of a web host: `TT:DDDDDD:SSSSSS:RR` for TLD, domain, subdomain and a reserved byte.

The database allocates the numbers and stores the names. This module splits names and packs numbers.
"""

import re
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from publicsuffixlist import PublicSuffixList

FIXED_TLDS: Final = MappingProxyType({"gov": 1, "mil": 2, "com": 3, "edu": 4, "net": 5, "org": 6})
OTHER: Final = 127
MAX: Final = 2**63 - 1

_TLD_BITS: Final = 56
_DOMAIN_BITS: Final = 32
_SUBDOMAIN_BITS: Final = 8
_LIMITS: Final = MappingProxyType(
    {"tld": (1, OTHER), "domain": (0, 0xFFFFFF), "subdomain": (0, 0xFFFFFF), "reserved": (0, 0xFF)}
)
_HEX: Final = re.compile(r"[0-9A-Fa-f]{1,16}")


@dataclass(frozen=True, slots=True, order=True)
class Parts:
    """The four numbers in a domain64, in its sort order."""

    tld: int
    domain: int
    subdomain: int
    reserved: int = 0

    def __post_init__(self) -> None:
        for field, (low, high) in _LIMITS.items():
            value = getattr(self, field)
            if not low <= value <= high:
                raise ValueError(f"domain64: {field} must be from {low} to {high}, not {value}")


@dataclass(frozen=True, slots=True)
class Range:
    """Every domain64 from `start` up to but not including `end`."""

    start: int
    end: int

    def __contains__(self, value: int) -> bool:
        return self.start <= value < self.end


@dataclass(frozen=True, slots=True)
class HostName:
    """A host name in the three parts that get numbers; no TLD means the code `OTHER`."""

    tld: str
    domain: str
    subdomain: str

    def under_other(self) -> "HostName":
        """Return the same host for a TLD without a code of its own."""
        return HostName("", f"{self.domain}.{self.tld}", self.subdomain) if self.tld else self


def encode(parts: Parts) -> int:
    return (
        parts.tld << _TLD_BITS
        | parts.domain << _DOMAIN_BITS
        | parts.subdomain << _SUBDOMAIN_BITS
        | parts.reserved
    )


def decode(value: int) -> Parts:
    """Split a domain64 into its parts; raise ValueError for any other number."""
    return Parts(
        value >> _TLD_BITS,
        value >> _DOMAIN_BITS & 0xFFFFFF,
        value >> _SUBDOMAIN_BITS & 0xFFFFFF,
        value & 0xFF,
    )


def to_hex(value: int) -> str:
    """Format a domain64 as 16 upper-case digits, so that texts sort like the numbers."""
    return f"{encode(decode(value)):016X}"


def from_hex(text: str) -> int:
    """Parse a domain64 in hex, in any case, with or without leading zeros."""
    # int() alone would also accept signs, blanks, underscores and the digits of other scripts.
    if not _HEX.fullmatch(text):
        raise ValueError(f"domain64: not 1 to 16 hexadecimal digits: {text[:40]!a}")
    return encode(decode(int(text, 16)))


def tld_range(tld: int) -> Range:
    return _range(Parts(tld, 0, 0), _TLD_BITS)


def domain_range(tld: int, domain: int) -> Range:
    return _range(Parts(tld, domain, 0), _DOMAIN_BITS)


def host_range(tld: int, domain: int, subdomain: int) -> Range:
    return _range(Parts(tld, domain, subdomain), _SUBDOMAIN_BITS)


def _range(first: Parts, bits: int) -> Range:
    start = encode(first)
    # The end of the last prefix is 2^63, which a bigint cannot hold. The cap loses no host: the highest one has
    # reserved byte 0 and so lies 255 below it.
    return Range(start, min(start + (1 << bits), MAX))


def split(host: str) -> HostName:
    """Split the host of a canonical URL, with its port, by the public suffix list."""
    name, port = _cut_port(host)
    labels, _, tld = name.rpartition(".")
    # A single label and an IPv6 address have no dot. A canonical name that ends in a number is an IPv4 address,
    # which the suffix list would split.
    if not labels or tld.isdigit():
        return HostName("", name, port)
    # A public suffix (`co.uk`, `github.io`) is a domain of its own beside those of its customers, never a parent
    # whose range would contain theirs.
    owned = _suffixes().privatesuffix(name) or name
    return HostName(tld, owned[: -len(tld) - 1], name[: -len(owned) - 1] + port)


def join(name: HostName) -> str:
    """Return the host that `split` took apart."""
    subdomain, port = _cut_port(name.subdomain)
    return ".".join(filter(None, (subdomain, name.domain, name.tld))) + port


def _cut_port(host: str) -> tuple[str, str]:
    """Separate `:8080` from a host; the colons in `[::1]` stay."""
    colon = host.find(":", host.find("]") + 1)
    return (host, "") if colon < 0 else (host[:colon], host[colon:])


@cache
def _suffixes() -> PublicSuffixList:
    """Load the list once, at first use, because it takes 55 ms."""
    return PublicSuffixList()
