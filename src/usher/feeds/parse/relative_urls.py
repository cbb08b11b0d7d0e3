"""Makes relative URLs absolute, in elements and in HTML. Of HTML only the URLs change."""

import re
from typing import Final
from urllib.parse import urljoin

# An absolute URL without a match stays the same when it is joined, so the slow join can be skipped.
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
# The last letters of the attribute names in _ADDRESS.
_LOWER_ENDINGS: Final = "ref src set ter ite ion und ata esc ase map ile"
_ENDINGS: Final = frozenset(f"{_LOWER_ENDINGS} {_LOWER_ENDINGS.upper()}".split())
_VOID: Final = re.compile(
    r"<(area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)((?:\s[^<>]*)?)></\1>"
)


def join(base: str, address: str) -> str:
    """The absolute URL of an address; empty if it has none."""
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
    """The HTML with absolute URLs."""
    if not base or not _may_be_relative(html):
        return html
    return _TAG.sub(lambda tag: _ADDRESS.sub(lambda match: _resolved(match, base), tag[0]), html)


def close_void_elements(xhtml: str) -> str:
    """XHTML that browsers read correctly as HTML: void elements have no end tag."""
    return _VOID.sub(r"<\1\2 />", xhtml) if "></" in xhtml else xhtml


def _may_be_relative(html: str) -> bool:
    """A quick test whether the HTML may have relative URLs."""
    before = ""
    for after in html.split("="):
        if (before[-3:] in _ENDINGS or before[-1:] == " ") and not after.startswith(_ABSOLUTE):
            return True
        before = after
    return False


def _resolved(match: re.Match[str], base: str) -> str:
    name, value = match[1], match[2]
    quote = value[0] if value[0] in {'"', "'"} else ""
    bare = value.strip(quote).strip() if quote else value
    if "srcset" in name.lower():
        url = ", ".join(_candidate(candidate, base) for candidate in bare.split(", "))
    else:
        url = _absolute(bare, base)
    return f"{name}{quote}{url}{quote}"


def _candidate(text: str, base: str) -> str:
    address, space, size = text.strip().partition(" ")
    return f"{_absolute(address, base)}{space}{size}"


def _absolute(address: str, base: str) -> str:
    if not address or _SCHEME.match(address):
        return address
    return join(base, address) or address
