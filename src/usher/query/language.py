"""What somebody types, as a value that every index server reads the same way.

Comes from the search box, the API and the command line: any text at all. Goes to the index servers as JSON, and to
`highlight`. Nothing is an error: what cannot be used is named in `ignored`, and the rest is searched for.

    words            every one of them          "a phrase"        these words in this order
    -word  -"a b"    none of these              a OR b            either of them
    site:host        a host, domain or suffix   lang:de           in this language
    title: url:      in the title, the URL      after: before:    2024, 2024-05 or 2024-05-17
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from usher.errors import BadInput
from usher.query.tokens import fold, language_code, strip_accents
from usher.urls import Url
from usher.urls import parse as parse_url

MAX_QUERY_CHARACTERS: Final = 1_000
MAX_TERM_CHARACTERS: Final = 200
MAX_TERMS: Final = 24
MAX_IGNORED: Final = 10

QueryText = Annotated[str, Meta(max_length=MAX_QUERY_CHARACTERS)]
TermText = Annotated[str, Meta(max_length=MAX_TERM_CHARACTERS)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
FilterValues = Annotated[tuple[TermText, ...], Meta(max_length=MAX_TERMS)]


class QueryTerm(Struct, frozen=True, omit_defaults=True):
    """A word or a phrase, wanted anywhere or only in one place."""

    text: TermText
    phrase: bool = False
    place: Literal["", "title", "url"] = ""


TermGroup = Annotated[tuple[QueryTerm, ...], Meta(min_length=1, max_length=MAX_TERMS)]


class Query(Struct, frozen=True, omit_defaults=True):
    """What is wanted: of each group any term, and none of the unwanted."""

    text: QueryText = ""
    groups: Annotated[tuple[TermGroup, ...], Meta(max_length=MAX_TERMS)] = ()
    unwanted: Annotated[tuple[QueryTerm, ...], Meta(max_length=MAX_TERMS)] = ()
    sites: FilterValues = ()
    not_sites: FilterValues = ()
    languages: FilterValues = ()
    not_languages: FilterValues = ()
    after: date | None = None  # from this day on
    before: date | None = None  # up to the day before this
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
        """The wanted words, each once, for marking them in a text."""
        return words_of(self.groups)


def words_of(groups: Iterable[TermGroup]) -> tuple[str, ...]:
    terms = [term for group in groups for term in group if term.place != "url"]
    return tuple(dict.fromkeys(word for term in terms for word in _WORD.findall(term.text)))


_WORD: Final = re.compile(r"[^\W_]+")
_QUOTES: Final = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d", '"')
)
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PIECE: Final = re.compile(
    r'(?P<minus>-?)(?:(?P<name>[a-z]+):)?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))', re.IGNORECASE
)
_DAY: Final = re.compile(r"([0-9]{4})(?:[-/.]([0-9]{1,2}))?(?:[-/.]([0-9]{1,2}))?")


def parse_query(text: str) -> Query:
    """Read any text; what cannot be used is in `ignored`."""
    clean, rest = _clean(text)
    reading = _Reading()
    if rest:
        reading.ignore(rest)
    if clean.count('"') % 2:
        reading.ignore('"')
        before, _, after = clean.rpartition('"')
        clean = f"{before} {after}"
    for match in _PIECE.finditer(clean):
        reading.take(match)
    return reading.finish(clean)


def decode(data: bytes) -> Query:
    """Read what `msgspec.json.encode` wrote; BadInput if it is no query."""
    try:
        query = msgspec.json.decode(data, type=Query)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"This is no query: {error}.") from error
    if sum(map(len, query.groups)) + len(query.unwanted) > MAX_TERMS:
        raise BadInput(f"This is no query: it has more than {MAX_TERMS} terms.")
    return query


def apply_corrections(text: str, better: Mapping[str, str]) -> str:
    """The text with other words in place of these, for "did you mean"; what follows `site:` stays."""
    clean = _clean(text)[0]

    def change(match: re.Match[str]) -> str:
        if match["name"] and match["name"].lower() in _NAMES:
            return match[0]
        return _WORD.sub(lambda word: better.get(strip_accents(word[0]), word[0]), match[0])

    return _PIECE.sub(change, clean)


def _clean(text: str) -> tuple[str, str]:
    """The text in one line and one form, and in words what was too much of it."""
    normal = unicodedata.normalize("NFKC", text[:MAX_QUERY_CHARACTERS])
    plain = " ".join(_CONTROLS.sub(" ", normal).translate(_QUOTES).split())
    most = (
        len(plain)
        if len(text) <= MAX_QUERY_CHARACTERS and len(plain) <= MAX_QUERY_CHARACTERS
        else _last_space(plain)
    )
    rest = (
        f"all after {most} characters"
        if most < len(plain) or len(text) > MAX_QUERY_CHARACTERS
        else ""
    )
    return plain[:most], rest


def _within_bounds(text: str) -> tuple[str, str]:
    """As many whole words as a term may have, and the rest; of one endless word, nothing."""
    if len(text) <= MAX_TERM_CHARACTERS:
        return text, ""
    kept = text[: MAX_TERM_CHARACTERS + 1].rpartition(" ")[0]
    return kept, text[len(kept) :].strip()


def _last_space(plain: str) -> int:
    """Where the last whole word within bounds ends; half a word would be another one."""
    space = plain.rfind(" ", 0, MAX_QUERY_CHARACTERS)
    return space if space > 0 else MAX_QUERY_CHARACTERS


@dataclass(slots=True)
class _Reading:
    """What is known of a query when half of it is read."""

    groups: list[list[QueryTerm]] = field(default_factory=list)
    unwanted: list[QueryTerm] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)
    days: dict[str, date] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    either: str = ""  # the OR that waits for its second half
    joins: bool = False  # whether an OR could follow

    def take(self, match: re.Match[str]) -> None:
        minus, name, word = bool(match["minus"]), (match["name"] or "").lower(), match["word"]
        value = word if word is not None else match["phrase"]
        if not minus and not name and word in ("OR", "|", "||"):
            self.take_or(word)
        elif not minus and not name and word in ("AND", "&", "&&", "+"):
            pass
        elif word is not None and word.endswith(":") and word[:-1].lower() in _NAMES:
            self.ignore(match[0])
        elif name in _NAMES:
            if not _NAMES[name](self, value, minus):
                self.ignore(match[0])
        else:
            text = f"{match['name']}:{value}" if name else value
            if not self.add(QueryTerm(text, phrase=word is None), unwanted=minus):
                self.ignore(match[0])

    def take_or(self, word: str) -> None:
        if self.either or not self.joins:
            self.ignore(word)
        else:
            self.either = word

    def add(self, term: QueryTerm, *, unwanted: bool) -> bool:
        """Whether there is something in the term that can be searched for, and room for it."""
        text, rest = _within_bounds(" ".join(fold(term.text).split()))
        full = sum(map(len, self.groups)) + len(self.unwanted) >= MAX_TERMS
        if full or not _WORD.search(text):
            return False
        if rest:
            self.ignore(rest)
        term = QueryTerm(text, phrase=term.phrase, place=term.place)
        if unwanted:
            self.drop_or()
            self.unwanted.append(term)
        elif self.either:
            self.groups[-1].append(term)
        else:
            self.groups.append([term])
        self.either, self.joins = "", not unwanted
        return True

    def filter(self, name: str, value: str, *, unwanted: bool) -> bool:
        self.drop_or()
        self.joins = False
        values = self.names.setdefault(f"not_{name}" if unwanted else name, [])
        if len(values) >= MAX_TERMS:
            return False
        if value not in values:
            values.append(value)
        return True

    def drop_or(self) -> None:
        if self.either:
            self.ignore(self.either)
        self.either = ""

    def ignore(self, what: str) -> None:
        if len(self.ignored) < MAX_IGNORED:
            self.ignored.append(what[:MAX_TERM_CHARACTERS])

    def finish(self, text: str) -> Query:
        self.drop_or()
        return Query(
            text=text,
            groups=tuple(map(tuple, self.groups)),
            unwanted=tuple(self.unwanted),
            sites=tuple(self.names.get("sites", ())),
            not_sites=tuple(self.names.get("not_sites", ())),
            languages=tuple(self.names.get("languages", ())),
            not_languages=tuple(self.names.get("not_languages", ())),
            after=self.days.get("after"),
            before=self.days.get("before"),
            ignored=tuple(self.ignored),
        )


def _site(reading: _Reading, value: str, unwanted: bool) -> bool:  # noqa: FBT001 - one of a table
    """`site:example.com/docs` is a site, and words of its URLs."""
    url = parse_url(
        f"http://{value.partition('://')[2] or value}".replace("//*.", "//").replace("//.", "//")
    )
    if not isinstance(url, Url) or len(url.host) > MAX_TERM_CHARACTERS:
        return False
    deeper = _WORD.search(url.path)
    if deeper and not unwanted:
        reading.add(QueryTerm(url.path, phrase=True, place="url"), unwanted=False)
    return not (deeper and unwanted) and reading.filter("sites", url.host, unwanted=unwanted)


def _language(reading: _Reading, value: str, unwanted: bool) -> bool:  # noqa: FBT001
    code = language_code(value)
    return bool(code) and reading.filter("languages", code, unwanted=unwanted)


def _title(reading: _Reading, value: str, unwanted: bool) -> bool:  # noqa: FBT001
    return reading.add(QueryTerm(value, phrase=" " in value, place="title"), unwanted=unwanted)


def _url(reading: _Reading, value: str, unwanted: bool) -> bool:  # noqa: FBT001
    return reading.add(QueryTerm(value, phrase=True, place="url"), unwanted=unwanted)


def _after(reading: _Reading, value: str, unwanted: bool) -> bool:  # noqa: FBT001
    return _keep_day(reading, "before" if unwanted else "after", value)


def _before(reading: _Reading, value: str, unwanted: bool) -> bool:  # noqa: FBT001
    return _keep_day(reading, "after" if unwanted else "before", value)


def _keep_day(reading: _Reading, name: str, value: str) -> bool:
    """Of two days for the same end, the narrower one counts."""
    day = _day(value)
    if day is None:
        return False
    narrower = max if name == "after" else min
    reading.days[name] = narrower(day, reading.days.get(name, day))
    return True


def _day(text: str) -> date | None:
    match = _DAY.fullmatch(text)
    if not match:
        return None
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None


_NAMES: Final[Mapping[str, Callable[[_Reading, str, bool], bool]]] = {
    "site": _site,
    "host": _site,
    "lang": _language,
    "language": _language,
    "title": _title,
    "intitle": _title,
    "url": _url,
    "inurl": _url,
    "after": _after,
    "before": _before,
}
