"""An answer as it is shown: links that are safe, addresses a person can read, pages to turn, filters to take away.

Comes from the broker; goes to templates, to JSON and to the terminal. Nothing here is ever HTML.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit

from msgspec import Struct, field

from usher.query.highlight import Segment, highlight
from usher.query.language import Query
from usher.query.results import Hit
from usher.search.merge import MergedHit
from usher.search.search_result import MAX_HITS, SearchResult
from usher.urls import Scheme, Url
from usher.urls import parse as parse_url

RESULTS_PER_PAGE: Final = 10  # results of a page
AROUND: Final = 3  # pages named before and after this one
LAST_PAGE: Final = 10**9  # that anybody can ask for
MOST_CRUMBS: Final = 4
LONGEST_CRUMB: Final = 40
_LINKED: Final = frozenset({"http", "https"})
_ADDRESS: Final = re.compile(
    r"(?:https?://\S+|(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?(?:/\S*)?)", re.IGNORECASE
)
_LANGUAGES: Final = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian",
    "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "ta": "Tamil", "th": "Thai", "tr": "Turkish",
    "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


class ResultView(Struct, frozen=True):
    """One result; `link` is empty where the address is none that a browser should follow."""

    title: list[Segment]
    link: str
    url: str
    host: str
    crumbs: list[str]
    snippet: list[Segment]
    language: str
    published: datetime | None
    crawled: datetime
    copies: int


class QueryFilter(Struct, frozen=True):
    """Something that narrows the query, in words, and the query without it."""

    words: str
    without: str


class Pagination(Struct, frozen=True):
    """The pages that can be turned to: this one, those near it, and the last."""

    page: int
    last: int
    near: list[int]
    capped: bool  # whether there are more results than can be paged through


class NoResultsHint(Struct, frozen=True):
    """What to try when nothing was found; `address` is the URL that was searched for, if it was one."""

    address: str = ""
    narrowed: bool = False
    words: list[str] = field(default_factory=list)


def results(answer: SearchResult) -> list[ResultView]:
    words = answer.query.words
    return [_shown(one, words, answer.snippet(one)) for one in answer.results.found]


def _shown(found: MergedHit, words: Sequence[str], snippet: list[Segment]) -> ResultView:
    hit = found.hit
    link = hit.url if is_link(hit.url) else ""
    return ResultView(
        title=title(hit, words),
        link=link,
        url=readable(hit.url),
        host=readable(hit.host),
        crumbs=crumbs(hit.url) if link else [],
        snippet=snippet,
        language=hit.language,
        published=hit.published,
        crawled=hit.crawled,
        copies=found.copies,
    )


def title(hit: Hit, words: Sequence[str]) -> list[Segment]:
    """What a result is called, if need be after its address, with the words marked."""
    text = hit.title or (crumbs(hit.url)[-1:] or [hit.host])[0]
    return highlight(text, words) or [(hit.host or "Untitled", False)]


def is_link(url: str) -> bool:
    """Whether a browser may follow it: a page of the web, never a script."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in _LINKED and bool(parts.netloc) and url.isprintable() and " " not in url


def readable(text: str) -> str:
    """Without characters that cannot be seen, or turn the direction of others."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def crumbs(url: str) -> list[str]:
    """The parts of the path as a person reads them; of a long one the last."""
    try:
        path = urlsplit(url).path
    except ValueError:
        return []
    parts = [readable(unquote(part)) for part in path.split("/") if part]
    short = [_short(part) for part in parts[-MOST_CRUMBS:]]
    return ["\N{HORIZONTAL ELLIPSIS}", *short] if len(parts) > MOST_CRUMBS else short


def _short(text: str) -> str:
    return (
        text
        if len(text) <= LONGEST_CRUMB
        else f"{text[: LONGEST_CRUMB - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


def paginate(total: int, page: int, size: int = RESULTS_PER_PAGE) -> Pagination:
    reachable = min(total, MAX_HITS)
    last = max(1, -(-reachable // size))
    near = list(range(max(1, page - AROUND), min(last, page + AROUND) + 1))
    return Pagination(page, last, near, total > MAX_HITS)


def page_number(text: str) -> int:
    """The page that somebody asks for; whatever is no number is the first."""
    if not (text.isascii() and text.isdigit()):
        return 1
    return LAST_PAGE if len(text) > len(str(LAST_PAGE)) else max(1, int(text))


def address_of(text: str, page: int = 1, path: str = "/search") -> str:
    asked = {"q": text} | ({"page": page} if page > 1 else {})
    return f"{path}?{urlencode(asked, errors='replace')}"


def filters(query: Query) -> list[QueryFilter]:
    """Everything that narrows a query, so that nobody wonders where the rest is."""
    found = []
    if query.sites:
        found.append(QueryFilter(f"from {_or(query.sites)}", without(query.text, "site:", "host:")))
    if query.not_sites:
        found.append(
            QueryFilter(f"not from {_or(query.not_sites)}", without(query.text, "-site:", "-host:"))
        )
    if query.languages:
        names = [language(code) for code in query.languages]
        found.append(QueryFilter(f"in {_or(names)}", without(query.text, "lang:", "language:")))
    if query.not_languages:
        names = [language(code) for code in query.not_languages]
        found.append(
            QueryFilter(f"not in {_or(names)}", without(query.text, "-lang:", "-language:"))
        )
    if query.after:
        found.append(
            QueryFilter(f"from {day(query.after)} on", without(query.text, "after:", "-before:"))
        )
    if query.before:
        found.append(
            QueryFilter(f"before {day(query.before)}", without(query.text, "before:", "-after:"))
        )
    return found


def without(text: str, *starts: str) -> str:
    return " ".join(word for word in text.split() if not word.lower().startswith(starts))


def narrowed(query: Query, host: str) -> str:
    """The query for this host alone."""
    return f"{without(query.text, 'site:', 'host:')} site:{host}".strip()


def hint(query: Query) -> NoResultsHint:
    """What might help somebody who found nothing."""
    return NoResultsHint(
        address=wanted_address(query),
        narrowed=bool(filters(query)) or bool(query.unwanted),
        words=list(query.words),
    )


def wanted_address(query: Query) -> str:
    """The URL that the query is, if it is one; in the form that a shell takes as one word."""
    text = query.text.strip('"').removeprefix("url:").removeprefix("site:")
    if not _ADDRESS.fullmatch(text):
        return ""
    url = parse_url(text)
    web = isinstance(url, Url) and url.scheme in (Scheme.HTTP, Scheme.HTTPS)
    return str(url) if web else ""


def day(moment: date) -> str:
    return f"{moment.day} {moment:%B %Y}"


def language(code: str) -> str:
    return _LANGUAGES.get(code, code)


def duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))} ms" if seconds < 1 else f"{seconds:.1f} s"


def _or(names: Sequence[str]) -> str:
    return " or ".join(names)
