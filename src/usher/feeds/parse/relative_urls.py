"""Relative addresses, in elements and inside HTML, made absolute.

Comes from a base and an address, or from a base and HTML; goes to the drafts of items. HTML is changed in its
addresses only: it is not parsed and written anew.
"""

import re
from typing import Final
from urllib.parse import urljoin

# What makes a join change a whole address; few have it, and a join is slow.
_ODD: Final = re.compile(r"[^\w/.~%+,:@!$&'()*=?#-]|[?#](?:#|$)|://(?:[/?#:@]|$)", re.ASCII)
_ROOTED: Final = re.compile(r"(?!//)(?!.*/\.)/")
_ORIGIN: Final = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?(?=/|$)")
_SLASHES: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+,.-]*://)/*")  # http:///x
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_TAG: Final = re.compile(r"<[A-Za-z][^<>]*>")
_ADDRESS: Final = re.compile(
    r"(\s(?:href|src|srcset|poster|cite|action|background|data|longdesc|codebase|usemap|profile)\s*=\s*)"
    r"""("[^"]*"|'[^']*'|[^\s"'>]+)""",
    re.IGNORECASE,
)
_ABSOLUTE: Final = ('"http:', '"https:', "'http:", "'https:", '"data:', '"mailto:')
_ENDS: Final = (
    frozenset(  # of the names of attributes that may hold an address, and a space before the sign
        word
        for end in (
            "ref",
            "src",
            "set",
            "ter",
            "ite",
            "ion",
            "und",
            "ata",
            "esc",
            "ase",
            "map",
            "ile",
        )
        for word in (end, end.upper())
    )
)
_VOID: Final = re.compile(
    r"<(area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)((?:\s[^<>]*)?)></\1>"
)


def join(base: str, address: str) -> str:
    """The address as seen from the base; nothing if it cannot be one."""
    if not _ODD.search(address):
        if address.startswith(("http://", "https://", "tag:", "urn:")):
            return address
        if _ROOTED.match(address) and (origin := _ORIGIN.match(base)):
            return origin[0] + address
    try:
        return urljoin(base, _SLASHES.sub(r"\1", address))
    except ValueError:
        return ""


def is_web_url(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def make_links_absolute(html: str, base: str) -> str:
    """The HTML with every address in it absolute."""
    if not base or not _may_be_relative(html):
        return html
    return _TAG.sub(lambda tag: _ADDRESS.sub(lambda one: _resolved(one, base), tag[0]), html)


def close_void_elements(xhtml: str) -> str:
    """XHTML that a browser reads rightly as HTML: elements without an inside have no end."""
    return _VOID.sub(r"<\1\2 />", xhtml) if "></" in xhtml else xhtml


def _may_be_relative(html: str) -> bool:
    """Whether a closer look is worth it, found out without one."""
    before = ""
    for after in html.split("="):
        if (before[-3:] in _ENDS or before[-1:] == " ") and not after.startswith(_ABSOLUTE):
            return True
        before = after
    return False


def _resolved(match: re.Match[str], base: str) -> str:
    name, value = match[1], match[2]
    quote = value[0] if value[0] in {'"', "'"} else ""
    bare = value.strip(quote).strip() if quote else value
    if "srcset" in name.lower():
        made = ", ".join(_candidate(one, base) for one in bare.split(", "))
    else:
        made = _seen(bare, base)
    return f"{name}{quote}{made}{quote}"


def _candidate(text: str, base: str) -> str:
    address, space, size = text.strip().partition(" ")
    return f"{_seen(address, base)}{space}{size}"


def _seen(address: str, base: str) -> str:
    if not address or _SCHEME.match(address):
        return address
    return join(base, address) or address
