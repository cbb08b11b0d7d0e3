"""The number of a web host: `TT:DDDDDD:SSSSSS:RR`, TLD, domain, subdomain and a reserved byte.

Comes from the host of a canonical URL (`urls`). Goes to the door, where the database allocates the
numbers and keeps the names; here is only how names split and how numbers are packed and compared.
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
    """The four numbers in a domain64, which sort as the domain64 does."""

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
        """Say the same host for a TLD that got no code of its own."""
        return HostName("", f"{self.domain}.{self.tld}", self.subdomain) if self.tld else self


def encode(parts: Parts) -> int:
    return (
        parts.tld << _TLD_BITS
        | parts.domain << _DOMAIN_BITS
        | parts.subdomain << _SUBDOMAIN_BITS
        | parts.reserved
    )


def decode(value: int) -> Parts:
    """Take a domain64 apart; any other number, 0 and negatives too, has no possible TLD."""
    return Parts(
        value >> _TLD_BITS,
        value >> _DOMAIN_BITS & 0xFFFFFF,
        value >> _SUBDOMAIN_BITS & 0xFFFFFF,
        value & 0xFF,
    )


def to_hex(value: int) -> str:
    """Write a domain64 as 16 upper-case digits, so that texts sort as the numbers do."""
    return f"{encode(decode(value)):016X}"


def from_hex(text: str) -> int:
    """Read a domain64 in hex, in any case, with or without leading zeros."""
    # int() alone would also take signs, blanks, underscores and the digits of other scripts.
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
    # Behind the very last prefix comes 2^63, which a bigint cannot hold. Ending one earlier loses
    # no host: the highest one has reserved byte 0 and so lies 255 below the cap.
    return Range(start, min(start + (1 << bits), MAX))


def split(host: str) -> HostName:
    """Split the host of a canonical URL, with its port, by the public suffix list."""
    name, port = _cut_port(host)
    labels, _, tld = name.rpartition(".")
    # One label or an IPv6 address has no dot. A canonical name that ends in a number is an IPv4
    # address, which the suffix list would cut apart.
    if not labels or tld.isdigit():
        return HostName("", name, port)
    # A public suffix (`co.uk`, `github.io`) belongs to nobody, so it is a domain of its own
    # beside those of its customers, never a parent whose range would hold theirs.
    owned = _suffixes().privatesuffix(name) or name
    return HostName(tld, owned[: -len(tld) - 1], name[: -len(owned) - 1] + port)


def join(name: HostName) -> str:
    """Write the host that `split` took apart."""
    subdomain, port = _cut_port(name.subdomain)
    return ".".join(filter(None, (subdomain, name.domain, name.tld))) + port


def _cut_port(host: str) -> tuple[str, str]:
    """Cut `:8080` off a host, and nothing off the inside of `[::1]`."""
    colon = host.find(":", host.find("]") + 1)
    return (host, "") if colon < 0 else (host[:colon], host[colon:])


@cache
def _suffixes() -> PublicSuffixList:
    """Read the list once, when the first host asks: 55 ms that an import should not cost."""
    return PublicSuffixList()
