"""What filters remove from a path: parameters, session ids, and the order of a query.

The rest stays byte by byte, and a second rewrite changes nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

# Parameters that are always session ids: PHP, Java, ASP, ColdFusion, osCommerce, Zen Cart.
_SESSION: Final = re.compile(
    "phpsessid|jsessionid|aspsessionid[a-z]*|cftoken|oscsid|zenid", re.IGNORECASE
)
# Parameters that may be session ids: removed if the value is long and contains a digit.
_MAYBE_SESSION: Final = frozenset(
    {"s", "sid", "sess", "sessid", "session", "sessionid", "session_id"}
)
_LONG_ID: Final = re.compile(r"(?=[^0-9]*[0-9])[0-9A-Za-z_-]{20,}")
# `;jsessionid=1A2B` at the end of a part, unless `.` or `..` would remain; ASP.NET's part `(S(1a2b))`.
_IN_PART: Final = re.compile(r"(?<!/\.)(?<!/\.\.);(?:jsessionid|phpsessid)=[^/;]*", re.IGNORECASE)
_PART: Final = re.compile(r"/\((?:[A-Z]\([0-9A-Za-z_-]{8,}\))+\)(?=/|$)")


@dataclass(frozen=True, slots=True)
class ParameterRewrite:
    """Keeps only these parameters of a query, or all but these."""

    names: frozenset[str]
    only: bool

    def __bool__(self) -> bool:
        return self.only or bool(self.names)

    def keeps(self, pair: str) -> bool:
        return (unquote(pair.partition("=")[0]) in self.names) is self.only

    def rewrite(self, path: str) -> str:
        bare, _, query = path.partition("?")
        return join_query(bare, filter(self.keeps, query.split("&")))


@dataclass(frozen=True, slots=True)
class SessionRewrite:
    """Removes session ids from path and query."""

    def keeps(self, pair: str) -> bool:
        name, _, value = pair.partition("=")
        if name.lower() in _MAYBE_SESSION:
            return not _LONG_ID.fullmatch(value)
        return not _SESSION.fullmatch(name)

    def rewrite(self, path: str) -> str:
        bare, _, query = path.partition("?")
        bare = _PART.sub("", _IN_PART.sub("", bare)) or "/"
        return join_query(bare, filter(self.keeps, query.split("&")))


@dataclass(frozen=True, slots=True)
class ParameterOrderRewrite:
    """Sorts parameters by name; those of the same name keep their order."""

    def rewrite(self, path: str) -> str:
        bare, _, query = path.partition("?")
        pairs = [pair for pair in query.split("&") if pair]
        if not all("=" in pair for pair in pairs):
            return path  # some servers read the first one as a path
        return join_query(bare, sorted(pairs, key=lambda pair: pair.partition("=")[0]))


UrlRewrite = ParameterRewrite | SessionRewrite | ParameterOrderRewrite


def join_query(bare: str, pairs: Iterable[str]) -> str:
    query = "&".join(pairs)
    return f"{bare}?{query}" if query else bare
