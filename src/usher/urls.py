"""Parses URLs to one canonical form, or to the reason why they are refused."""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from ada_url import join_url, normalize_url

MAX_TEXT: Final = 8_192
MAX_HOST: Final = 253
MAX_LABEL: Final = 63
MAX_PATH: Final = 2_000

# Parameters that only identify a click: the page is the same without them.
TRACKING: Final = frozenset(
    {"_ga", "_gl", "dclid", "gad_source", "gbraid", "gclid", "gclsrc", "wbraid"}  # Google
    | {"__hsfp", "__hssc", "__hstc", "_hsenc", "_hsmi", "hsctatracking"}  # HubSpot
    | {"fbclid", "igsh", "igshid", "epik", "li_fat_id", "ttclid", "twclid"}  # social networks
    | {"_openstat", "msclkid", "rb_clickid", "srsltid", "wickedid", "yclid", "ysclid"}  # shops
    | {"_kx", "mc_cid", "mc_eid", "mkt_tok", "oly_anon_id", "oly_enc_id", "vero_id"}  # mailings
)
TRACKING_PREFIX: Final = "utm_"

RefusalReason = Literal["bad_url", "too_long", "unsupported_scheme"]


class Scheme(IntEnum):
    """The supported schemes, with the numbers that the guestbook stores."""

    HTTPS = 1
    HTTP = 2
    SFTP = 3
    FTP = 4

    @property
    def word(self) -> str:
        return _WORDS[self]


_WORDS: Final[dict[int, str]] = {scheme: scheme.name.lower() for scheme in Scheme}


@dataclass(frozen=True, slots=True)
class Url:
    """A canonical URL: `host` with its port unless it is the default, `path` with its query."""

    scheme: Scheme
    host: str
    path: str

    def __str__(self) -> str:
        return url_text(self.scheme, self.host, self.path)


def url_text(scheme: int, host: str, path: str) -> str:
    """Return the text of a canonical URL from its parts in the guestbook."""
    return f"{_WORDS[scheme]}://{host}{path}"


@dataclass(frozen=True, slots=True)
class UrlRefusal:
    """Why a text is refused; `detail` never repeats the text, which may hold a password."""

    reason: RefusalReason
    detail: str


_INVALID: Final = UrlRefusal("bad_url", "The host, the port or a character of the URL is invalid.")

# The schemes that the WHATWG parser knows: it fills in the path and drops default ports.
_KNOWN: Final = {"https:": Scheme.HTTPS, "http:": Scheme.HTTP, "ftp:": Scheme.FTP}
_KNOWN_PREFIXES: Final = tuple(f"{word}//" for word in _KNOWN)

# WHATWG allows more (`a*b`, `a"b`), but such names do not resolve.
_HOST: Final = re.compile(
    rf"(?:(?:[a-z0-9_-]{{1,{MAX_LABEL}}}\.)*[a-z0-9_-]{{1,{MAX_LABEL}}}|\[[0-9a-f:]+\])(?::[0-9]+)?"
)
_SCHEME_WITHOUT_COLON: Final = re.compile(r"(https?|s?ftp)//", re.IGNORECASE)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE | re.ASCII)
_HOST_AND_PORT: Final = re.compile(
    r"[a-z][a-z0-9.-]*:[0-9]{1,5}(?![^/?#\\])", re.IGNORECASE | re.ASCII
)
# `tel:911` looks like a host with a port but is none.
_SCHEMES_WITHOUT_HOST: Final = frozenset(
    {"about", "data", "fax", "file", "javascript", "mailto", "sms", "tel", "urn", "vbscript"}
)

# A URL parser ignores these around the text, and line ends and tabs anywhere in it.
_AROUND: Final = "".join(map(chr, range(0x21)))
_INSIDE: Final = str.maketrans("", "", "\t\n\r")

_ESCAPE: Final = re.compile(r"((?:%[0-9A-Fa-f]?)?)(%[0-9A-Fa-f]{2})")
_UNRESERVED: Final = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PLAIN: Final = {f"%{ord(char):02X}": char for char in _UNRESERVED}


def parse(text: str, base: Url | None = None) -> Url | UrlRefusal:
    """Parse a link on the page `base`; without a base, parse what a person types."""
    if len(text) > MAX_TEXT:
        return _too_long("The URL", len(text), MAX_TEXT)
    return _parse(text, base)


def _parse(text: str, base: Url | None = None) -> Url | UrlRefusal:
    try:
        href = normalize_url(text) if base is None else join_url(str(base), text)
    except ValueError:
        return _parse_other(text, base)
    if not href.startswith(_KNOWN_PREFIXES):
        return _parse_other(text, base)
    word, _, host, tail = href.split("/", 3)
    return _canonical(_KNOWN[word], host, tail)


def _parse_other(text: str, base: Url | None) -> Url | UrlRefusal:
    """Parse what the WHATWG parser refuses or does not know: sftp, bare names, other schemes."""
    text = text.translate(_INSIDE).strip(_AROUND)
    match = _SCHEME.match(text)
    word = match[1].lower() if match else ""
    if word == "sftp" or (not word and base is not None and base.scheme is Scheme.SFTP):
        return _parse_sftp(text, base)
    if not word and base is None:
        return _parse_bare(text)
    if not word or f"{word}:" in _KNOWN:
        return _INVALID
    if base is None and word not in _SCHEMES_WITHOUT_HOST and _HOST_AND_PORT.match(text):
        return _parse(f"https://{text}")
    return _unsupported(word)


def _parse_bare(text: str) -> Url | UrlRefusal:
    """Parse `example.com/x` and `//example.com/x` as https."""
    if text.startswith("//"):
        return _parse(f"https:{text}")
    if match := _SCHEME_WITHOUT_COLON.match(text):
        return UrlRefusal("bad_url", f"A colon is missing: {match[1]}://")
    if not text or text[0] in "/\\?#":
        return UrlRefusal("bad_url", "This names no host, and no page is given that it belongs to.")
    return _parse(f"https://{text}")


def _parse_sftp(text: str, base: Url | None) -> Url | UrlRefusal:
    """Parse sftp as http and as https: each drops its default port, so the longer host is complete."""
    try:
        (host, tail), (other, _) = (_as_web(word, text, base) for word in ("http", "https"))
    except ValueError:
        return _INVALID
    return _canonical(Scheme.SFTP, max(host, other, key=len).removesuffix(":22"), tail)


def _as_web(word: str, text: str, base: Url | None) -> tuple[str, str]:
    if text[:5].lower() == "sftp:":
        text = f"{word}{text[4:]}"
    if base is not None and base.scheme is Scheme.SFTP:
        href = join_url(f"{word}://{base.host}{base.path}", text)
    else:
        href = normalize_url(text)
    _, _, host, tail = href.split("/", 3)
    return host, tail


def _canonical(scheme: Scheme, host: str, tail: str) -> Url | UrlRefusal:
    """Return the canonical URL; `tail` is the text after the first slash behind the host."""
    if host.endswith(".") or ".:" in host:
        host = host.replace(".:", ":").removesuffix(".")
    if len(host) > MAX_HOST or not _HOST.fullmatch(host):
        return _bad_host(host)
    path = f"/{_normalize(tail)}"
    if len(path) > MAX_PATH:
        return _too_long("The path with its query", len(path), MAX_PATH)
    return Url(scheme, host, path)


def _normalize(tail: str) -> str:
    if "#" in tail:
        tail = tail[: tail.index("#")]
    if "%" in tail:
        tail = _ESCAPE.sub(_normalize_escape, tail)
    return _without_tracking(tail) if "?" in tail else tail


def _normalize_escape(match: re.Match[str]) -> str:
    """Decode an unreserved character, unless a stray `%` before it would make a new escape."""
    stray, escape = match[1], match[2].upper()
    return f"{stray}{escape}" if stray else _PLAIN.get(escape, escape)


def _without_tracking(tail: str) -> str:
    path, _, query = tail.partition("?")
    query = "&".join([pair for pair in query.split("&") if not _is_tracking(pair)])
    return f"{path}?{query}" if query else path


def _is_tracking(pair: str) -> bool:
    name = pair.partition("=")[0].lower()
    return name in TRACKING or name.startswith(TRACKING_PREFIX)


def _bad_host(host: str) -> UrlRefusal:
    if "@" in host:
        return UrlRefusal("bad_url", "The URL has a user name or a password; remove them.")
    if len(host) > MAX_HOST:
        return _too_long("The host", len(host), MAX_HOST)
    label = max(map(len, host.partition(":")[0].split(".")))
    if label > MAX_LABEL:
        return _too_long("A part of the host name", label, MAX_LABEL)
    return UrlRefusal("bad_url", "The host name has an empty part or an invalid character.")


def _too_long(what: str, length: int, maximum: int) -> UrlRefusal:
    return UrlRefusal("too_long", f"{what} has {length} characters; at most {maximum} are allowed.")


def _unsupported(word: str) -> UrlRefusal:
    scheme = word if len(word) <= MAX_LABEL else f"{word[:MAX_LABEL]}..."
    supported = ", ".join(_WORDS.values())
    return UrlRefusal("unsupported_scheme", f"The scheme {scheme!r} is not one of {supported}.")
