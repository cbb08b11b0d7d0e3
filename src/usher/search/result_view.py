"""Search results as the page, JSON and the terminal show them: safe links, readable addresses, pages and filters.

Nothing here is HTML.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from msgspec import Struct, field

from usher.query.highlight import Segment, highlight
from usher.query.language import Query
from usher.query.results import Hit
from usher.search.merge import MergedHit
from usher.search.search_result import MAX_HITS, SearchResult
from usher.urls import Scheme, Url
from usher.urls import parse as parse_url

RESULTS_PER_PAGE: Final = 10
NEARBY_PAGES: Final = 3  # linked before and after the current one
MAX_PAGE: Final = 10**9
MAX_CRUMBS: Final = 4
MAX_CRUMB_CHARACTERS: Final = 40
ANCHOR_CHARACTERS: Final = (
    "!$&'()*+,;=:@/?-._~%"  # of a fragment, RFC 3986; an anchor may be escaped already
)
_LINKED_SCHEMES: Final = frozenset({"http", "https"})
_ADDRESS: Final = re.compile(
    r"(?:https?://\S+|(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?(?:/\S*)?)", re.IGNORECASE
)
# An address that has no escapes in its host, so that it need not be split; and its path.
_PLAIN_URL: Final = re.compile(
    r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?(/[!-\"$->@-~]*)?(?:[?#][!-~]*)?"
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


class SectionView(Struct, frozen=True):
    """A section of a page; `link` is empty if a browser should not follow the address of the page."""

    title: list[Segment]
    link: str
    url: str


class ResultView(Struct, frozen=True):
    """One result; `link` is empty if a browser should not follow the address.

    `sections` are the parts of the page that match best. If `section` is not empty, the snippet is from the first.
    """

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
    weak: bool = False
    sections: list[SectionView] = field(default_factory=list)
    section: str = ""


class QueryFilter(Struct, frozen=True):
    """A filter of the query in words, and the query without it."""

    words: str
    without: str


class Pagination(Struct, frozen=True):
    """The current page, the last one, and the pages nearby."""

    page: int
    last: int
    near: list[int]
    capped: bool  # whether there are more results than can be paged through


class NoResultsHint(Struct, frozen=True):
    """What to try if there are no results; `address` is the URL that was searched for, if it was one."""

    address: str = ""
    narrowed: bool = False
    words: list[str] = field(default_factory=list)


def result_views(result: SearchResult) -> list[ResultView]:
    return [result_view(result, merged) for merged in result.results.hits]


def result_view(result: SearchResult, merged: MergedHit) -> ResultView:
    hit = merged.hit
    link = hit.url if is_link(hit.url) else ""
    return ResultView(
        title=title(hit, result.title_words(merged)),
        link=link,
        url=readable(hit.url),
        host=readable(hit.host),
        crumbs=crumbs(hit.url) if link else [],
        snippet=result.snippet(merged),
        language=hit.language,
        published=hit.published,
        crawled=hit.crawled,
        copies=merged.copies,
        weak=hit.weak,
        sections=section_views(result, merged),
        section=readable(result.snippet_section(merged)),
    )


def section_views(result: SearchResult, merged: MergedHit) -> list[SectionView]:
    sections = result.sections(merged)
    if not sections:
        return []
    views, title_words = [], result.title_words(merged)
    page = merged.hit.url.partition("#")[0]
    is_page_link = is_link(page)
    for section in sections:
        url = f"{page}#{quote(section.anchor, safe=ANCHOR_CHARACTERS)}"
        link = url if is_page_link else ""
        words = highlight(section.title, title_words) or [(section.anchor, False)]
        views.append(SectionView(words, link, readable(url)))
    return views


def title(hit: Hit, words: Sequence[str]) -> list[Segment]:
    """The highlighted title, else the last part of the address."""
    text = hit.title or (crumbs(hit.url)[-1:] or [hit.host])[0]
    return highlight(text, words) or [(hit.host or "Untitled", False)]


def is_link(url: str) -> bool:
    """Whether a browser may follow the URL: http and https only, never a script."""
    if _PLAIN_URL.fullmatch(url):
        return True
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_web = parts.scheme in _LINKED_SCHEMES and bool(parts.netloc)
    return is_web and url.isprintable() and " " not in url


def readable(text: str) -> str:
    """Replace invisible characters and those that change the direction of text."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def crumbs(url: str) -> list[str]:
    """The decoded parts of the path; of a long path the last ones."""
    if plain := _PLAIN_URL.fullmatch(url):
        path = plain[1] or ""
    else:
        try:
            path = urlsplit(url).path
        except ValueError:
            return []
    parts = [readable(unquote(part)) for part in path.split("/") if part]
    short = [shorten(part, MAX_CRUMB_CHARACTERS) for part in parts[-MAX_CRUMBS:]]
    return ["\N{HORIZONTAL ELLIPSIS}", *short] if len(parts) > MAX_CRUMBS else short


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def paginate(total: int, page: int, *, more: bool = False) -> Pagination:
    """The pages of all good matches, and the next page if weaker matches follow."""
    size = RESULTS_PER_PAGE
    good, following = max(1, -(-total // size)), page + 1 if more else 1
    last = min(max(good, following), MAX_HITS // size)
    near = list(range(max(1, page - NEARBY_PAGES), min(last, page + NEARBY_PAGES) + 1))
    return Pagination(page, last, near, max(total, size * (following - 1) + 1) > MAX_HITS)


def page_number(text: str) -> int:
    """The requested page; the first one if the text is not a number."""
    if not (text.isascii() and text.isdigit()):
        return 1
    return MAX_PAGE if len(text) > len(str(MAX_PAGE)) else max(1, int(text))


def search_path(text: str, page: int = 1, path: str = "/search", *, verbatim: bool = False) -> str:
    """The path and query string of a page of results."""
    params = (
        {"q": text} | ({"page": page} if page > 1 else {}) | ({"verbatim": 1} if verbatim else {})
    )
    return f"{path}?{urlencode(params, errors='replace')}"


def filters(query: Query) -> list[QueryFilter]:
    """All filters of a query, so that the page can explain missing results."""
    names, not_names = map(language, query.languages), map(language, query.not_languages)
    after, before = (day(moment) if moment else "" for moment in (query.after, query.before))
    candidates = [
        ("from {}", " or ".join(query.sites), ("site:", "host:")),
        ("not from {}", " or ".join(query.not_sites), ("-site:", "-host:")),
        ("in {}", " or ".join(names), ("lang:", "language:")),
        ("not in {}", " or ".join(not_names), ("-lang:", "-language:")),
        ("from {} on", after, ("after:", "-before:")),
        ("before {}", before, ("before:", "-after:")),
    ]
    return [
        QueryFilter(words.format(value), without(query.text, *operators))
        for words, value, operators in candidates
        if value
    ]


def without(text: str, *operators: str) -> str:
    return " ".join(word for word in text.split() if not word.lower().startswith(operators))


def narrowed(query: Query, host: str) -> str:
    """The query restricted to a host."""
    return f"{without(query.text, 'site:', 'host:')} site:{host}".strip()


def hint(query: Query) -> NoResultsHint:
    return NoResultsHint(
        address=wanted_address(query),
        narrowed=bool(filters(query)) or bool(query.unwanted),
        words=list(query.words),
    )


def wanted_address(query: Query) -> str:
    """The URL if the query is one, normalized."""
    text = query.text.strip('"').removeprefix("url:").removeprefix("site:")
    if not _ADDRESS.fullmatch(text):
        return ""
    url = parse_url(text)
    is_web = isinstance(url, Url) and url.scheme in (Scheme.HTTP, Scheme.HTTPS)
    return str(url) if is_web else ""


def day(moment: date) -> str:
    return f"{moment.day} {moment:%B %Y}"


def language(code: str) -> str:
    return _LANGUAGES.get(code, code)


def duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))} ms" if seconds < 1 else f"{seconds:.1f} s"
