"""What filters forget of a path: parameters, session ids, and the order of a query.

Comes from filters, which say what to forget; goes back as the path that is kept. What stays, stays byte by byte, and
what has been trimmed once is the same when trimmed again.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

# Names of nothing but session ids: PHP, Java, ASP, ColdFusion, osCommerce, Zen Cart.
_SESSION: Final = re.compile(
    "phpsessid|jsessionid|aspsessionid[a-z]*|cftoken|oscsid|zenid", re.IGNORECASE
)
# Names of other things as well: of these only what looks like a session id goes, long and with a figure in it.
_PERHAPS: Final = frozenset({"s", "sid", "sess", "sessid", "session", "sessionid", "session_id"})
_LONG_ID: Final = re.compile(r"(?=[^0-9]*[0-9])[0-9A-Za-z_-]{20,}")
# `;jsessionid=1A2B` at the end of a part, but not where `.` or `..` would be left of it; ASP.NET's part `(S(1a2b))`.
_IN_PART: Final = re.compile(r"(?<!/\.)(?<!/\.\.);(?:jsessionid|phpsessid)=[^/;]*", re.IGNORECASE)
_PART: Final = re.compile(r"/\((?:[A-Z]\([0-9A-Za-z_-]{8,}\))+\)(?=/|$)")


@dataclass(frozen=True, slots=True)
class ParameterRewrite:
    """Which parameters of a query stay: only these, or all but these."""

    names: frozenset[str]
    only: bool

    def __bool__(self) -> bool:
        return self.only or bool(self.names)

    def stays(self, pair: str) -> bool:
        return (unquote(pair.partition("=")[0]) in self.names) is self.only

    def trim(self, path: str) -> str:
        bare, _, query = path.partition("?")
        return joined(bare, filter(self.stays, query.split("&")))


@dataclass(frozen=True, slots=True)
class SessionRewrite:
    """Takes session ids out of path and query."""

    def stays(self, pair: str) -> bool:
        name, _, value = pair.partition("=")
        if name.lower() in _PERHAPS:
            return not _LONG_ID.fullmatch(value)
        return not _SESSION.fullmatch(name)

    def trim(self, path: str) -> str:
        bare, _, query = path.partition("?")
        bare = _PART.sub("", _IN_PART.sub("", bare)) or "/"
        return joined(bare, filter(self.stays, query.split("&")))


@dataclass(frozen=True, slots=True)
class ParameterOrderRewrite:
    """Parameters by name, so that a query is the same whatever its order; those of one name stay as they were."""

    def trim(self, path: str) -> str:
        bare, _, query = path.partition("?")
        pairs = [pair for pair in query.split("&") if pair]
        if not all("=" in pair for pair in pairs):
            return path  # there are servers that read the first as a path
        return joined(bare, sorted(pairs, key=lambda pair: pair.partition("=")[0]))


UrlRewrite = ParameterRewrite | SessionRewrite | ParameterOrderRewrite


def joined(bare: str, pairs: Iterable[str]) -> str:
    query = "&".join(pairs)
    return f"{bare}?{query}" if query else bare
