"""The query language: turns the text of a search into a `Query` that every index server interprets identically.

No text is an error: `ignored` lists the parts that cannot be used, and the rest is searched for.

    words            the more of them the better
    +word  a AND b   required                   "a phrase"        these words in this order
    -word  -"a b"    none of these              a OR b            either of them
    site:host        a host, domain or suffix   lang:de           in this language
    title: url:      in the title, the URL      after: before:    2024, 2024-05 or 2024-05-17
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from usher.query.tokens import fold, language_code, strip_accents
from usher.urls import Url
from usher.urls import parse as parse_url

MAX_QUERY_CHARACTERS: Final = 1_000
MAX_TERM_CHARACTERS: Final = 200
MAX_TERMS: Final = 100
MAX_IGNORED: Final = 10
MIN_PASTED_WORDS: Final = 20  # outside quotes, from which on a query is a pasted text
MIN_CAPITAL_WORDS: Final = 4  # from which on capitals are a habit

QueryText = Annotated[str, Meta(max_length=MAX_QUERY_CHARACTERS)]
TermText = Annotated[str, Meta(max_length=MAX_TERM_CHARACTERS)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
FilterValues = Annotated[tuple[TermText, ...], Meta(max_length=MAX_TERMS)]


class QueryTerm(Struct, frozen=True, omit_defaults=True):
    """A word or a phrase; `place` restricts it to the title or the URL, `plus` requires a word."""

    text: TermText
    phrase: bool = False
    place: Literal["", "title", "url"] = ""
    plus: bool = False


TermGroup = Annotated[tuple[QueryTerm, ...], Meta(min_length=1, max_length=MAX_TERMS)]


def is_required(group: Sequence[QueryTerm]) -> bool:
    """Whether a page must match the group: it is more than a plain word."""
    [term, *others] = group
    return bool(others or term.phrase or term.place or term.plus)


class Query(Struct, frozen=True, omit_defaults=True):
    """A parsed query: a page matches if it has a term of each required group and none of the unwanted terms.

    If no group is required, a page has at least one of the words.
    """

    text: QueryText = ""
    groups: Annotated[tuple[TermGroup, ...], Meta(max_length=MAX_TERMS)] = ()
    unwanted: Annotated[tuple[QueryTerm, ...], Meta(max_length=MAX_TERMS)] = ()
    sites: FilterValues = ()
    not_sites: FilterValues = ()
    languages: FilterValues = ()
    not_languages: FilterValues = ()
    after: date | None = None  # inclusive
    before: date | None = None  # exclusive
    ranges: Annotated[
        tuple[tuple[Number, Number], ...], Meta(max_length=MAX_TERMS)
    ] = ()  # of domain64
    ignored: Annotated[tuple[str, ...], Meta(max_length=MAX_IGNORED)] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to search for."""
        narrowed = self.sites or self.languages or self.ranges or self.after or self.before
        return bool(
            self.groups or self.unwanted or narrowed or self.not_sites or self.not_languages
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The words to highlight, without duplicates."""
        return words_of(self.groups)


def words_of(groups: Iterable[TermGroup]) -> tuple[str, ...]:
    """The words of these groups without duplicates; terms that apply to the URL are left out."""
    terms = [term for group in groups for term in group if term.place != "url"]
    return tuple(dict.fromkeys(word for term in terms for word in _WORD.findall(term.text)))


_WORD: Final = re.compile(r"[^\W_]+")
_QUOTES: Final = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d", '"')
)
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PIECE: Final = re.compile(
    r'(?P<sign>[-+]?)(?:(?P<name>[a-z]+):)?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))', re.IGNORECASE
)
_DAY: Final = re.compile(r"([0-9]{4})(?:[-/.]([0-9]{1,2}))?(?:[-/.]([0-9]{1,2}))?")
_OPERATORS: Final = frozenset(
    {"site", "host", "lang", "language", "title", "intitle", "url", "inurl", "after", "before"}
)


def parse_query(text: str) -> Query:
    """Parse any text; `ignored` lists the parts that cannot be used."""
    clean, excess = _clean(text)
    parser = _Parser()
    if excess:
        parser.ignore(excess)
    if clean.count('"') % 2:
        parser.ignore('"')
        before, _, after = clean.rpartition('"')
        clean = f"{before} {after}"
    for match in _PIECE.finditer(_without_accidental_syntax(clean)):
        parser.take(match)
    return parser.finish(clean)


def _without_accidental_syntax(text: str) -> str:
    """The text of a query in which quotes and capitals are syntax only if the reader seems to mean that.

    Quotes in a pasted text are punctuation, and AND among other words in capitals is a word.
    """
    outside = " ".join(text.split('"')[::2]).split()
    if len(outside) >= MIN_PASTED_WORDS:
        text = text.replace('"', " ")
    if text.isupper() and len(outside) >= MIN_CAPITAL_WORDS:
        text = text.replace(" AND ", " and ").replace(" OR ", " or ")
    return text


def apply_corrections(text: str, corrections: Mapping[str, str]) -> str:
    """Replace misspelt words of a query, except in the values of operators such as `site:`."""

    def correct(match: re.Match[str]) -> str:
        if match["name"] and match["name"].lower() in _OPERATORS:
            return match[0]
        return _WORD.sub(lambda word: corrections.get(strip_accents(word[0]), word[0]), match[0])

    return _PIECE.sub(correct, _clean(text)[0])


def _clean(text: str) -> tuple[str, str]:
    """The normalized text in one line, and a description of what was cut off."""
    normal = unicodedata.normalize("NFKC", text[:MAX_QUERY_CHARACTERS])
    plain = " ".join(_CONTROLS.sub(" ", normal).translate(_QUOTES).split())
    if len(text) <= MAX_QUERY_CHARACTERS and len(plain) <= MAX_QUERY_CHARACTERS:
        return plain, ""
    # Cut after a whole word: half a word would be a different one.
    space = plain.rfind(" ", 0, MAX_QUERY_CHARACTERS)
    end = space if space > 0 else MAX_QUERY_CHARACTERS
    return plain[:end], f"all after {end} characters"


def _cut_term(text: str) -> tuple[str, str]:
    """As many whole words as fit into a term, and the rest; a single word that is too long is all rest."""
    if len(text) <= MAX_TERM_CHARACTERS:
        return text, ""
    start = text[: MAX_TERM_CHARACTERS + 1].rpartition(" ")[0]
    return start, text[len(start) :].strip()


@dataclass(slots=True)
class _Parser:
    """The state of parsing."""

    groups: list[list[QueryTerm]] = field(default_factory=list)
    unwanted: list[QueryTerm] = field(default_factory=list)
    filters: dict[str, list[str]] = field(default_factory=dict)
    days: dict[str, date] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    pending_or: str = ""  # the OR that waits for its second operand
    or_allowed: bool = False
    pending_and: bool = False

    def take(self, match: re.Match[str]) -> None:
        """Process one piece of the text."""
        sign, name, word = match["sign"], (match["name"] or "").lower(), match["word"]
        minus = sign == "-"
        value = word if word is not None else match["phrase"]
        if not sign and not name and word in ("OR", "|", "||"):
            self.take_or(word)
        elif not sign and not name and word == "AND":
            self.take_and()
        elif not sign and not name and word in ("&", "&&", "+"):
            pass  # part of a name or a title, as in "salt & pepper"
        elif word is not None and word.endswith(":") and word[:-1].lower() in _OPERATORS:
            self.ignore(match[0])
        elif name in _OPERATORS:
            if not self.take_operator(name, value, unwanted=minus):
                self.ignore(match[0])
        else:
            text = f"{match['name']}:{value}" if name else value
            is_phrase = word is None or "://" in text  # an address is searched as it is
            term = QueryTerm(text, phrase=is_phrase, plus=sign == "+")
            if not self.add(term, unwanted=minus):
                self.ignore(match[0])

    def take_or(self, word: str) -> None:
        if self.pending_or or not self.or_allowed:
            self.ignore(word)
        else:
            self.pending_or = word

    def take_and(self) -> None:
        """Require the words on both sides."""
        self.pending_and = self.or_allowed and not self.pending_or
        if self.pending_and:
            self.groups[-1] = [replace(term, plus=True) for term in self.groups[-1]]

    def take_operator(self, name: str, value: str, *, unwanted: bool) -> bool:
        """Apply `name:value`; False if the value cannot be used."""
        match name:
            case "site" | "host":
                return self.take_site(value, unwanted=unwanted)
            case "lang" | "language":
                code = language_code(value)
                return bool(code) and self.filter("languages", code, unwanted=unwanted)
            case "title" | "intitle":
                term = QueryTerm(value, phrase=" " in value, place="title")
                return self.add(term, unwanted=unwanted)
            case "url" | "inurl":
                return self.add(QueryTerm(value, phrase=True, place="url"), unwanted=unwanted)
            case _:
                is_after = (name == "after") != unwanted
                return self.take_day("after" if is_after else "before", value)

    def take_site(self, value: str, *, unwanted: bool) -> bool:
        """`site:example.com/docs` filters by host and requires the words of the path in the URL."""
        address = f"http://{value.partition('://')[2] or value}"
        url = parse_url(address.replace("//*.", "//").replace("//.", "//"))
        if not isinstance(url, Url) or len(url.host) > MAX_TERM_CHARACTERS:
            return False
        if _WORD.search(url.path):
            if unwanted:
                return False
            self.add(QueryTerm(url.path, phrase=True, place="url"), unwanted=False)
        return self.filter("sites", url.host, unwanted=unwanted)

    def take_day(self, name: str, value: str) -> bool:
        """Apply `after:` or `before:`; of several the narrowest counts."""
        match = _DAY.fullmatch(value)
        try:
            day = date(int(match[1]), int(match[2] or 1), int(match[3] or 1)) if match else None
        except ValueError:
            day = None
        if day is None:
            return False
        narrower = max if name == "after" else min
        self.days[name] = narrower(day, self.days.get(name, day))
        return True

    def add(self, term: QueryTerm, *, unwanted: bool) -> bool:
        """Add a term; False if it has no word or the query is full."""
        text, rest = _cut_term(" ".join(fold(term.text).split()))
        full = sum(map(len, self.groups)) + len(self.unwanted) >= MAX_TERMS
        if full or not _WORD.search(text):
            return False
        if rest:
            self.ignore(rest)
        term = replace(term, text=text, plus=term.plus or (self.pending_and and not unwanted))
        self.pending_and = False
        if unwanted:
            self.drop_or()
            self.unwanted.append(term)
        elif self.pending_or:
            self.groups[-1].append(term)
        else:
            self.groups.append([term])
        self.pending_or, self.or_allowed = "", not unwanted
        return True

    def filter(self, name: str, value: str, *, unwanted: bool) -> bool:
        """Add a value to a filter; False if the filter is full."""
        self.drop_or()
        self.or_allowed = False
        values = self.filters.setdefault(f"not_{name}" if unwanted else name, [])
        if len(values) >= MAX_TERMS:
            return False
        if value not in values:
            values.append(value)
        return True

    def drop_or(self) -> None:
        if self.pending_or:
            self.ignore(self.pending_or)
        self.pending_or = ""

    def ignore(self, text: str) -> None:
        if len(self.ignored) < MAX_IGNORED:
            self.ignored.append(text[:MAX_TERM_CHARACTERS])

    def finish(self, text: str) -> Query:
        self.drop_or()
        return Query(
            text=text,
            groups=tuple(map(tuple, self.groups)),
            unwanted=tuple(self.unwanted),
            sites=tuple(self.filters.get("sites", ())),
            not_sites=tuple(self.filters.get("not_sites", ())),
            languages=tuple(self.filters.get("languages", ())),
            not_languages=tuple(self.filters.get("not_languages", ())),
            after=self.days.get("after"),
            before=self.days.get("before"),
            ignored=tuple(self.ignored),
        )
