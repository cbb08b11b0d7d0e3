"""Filters: which paths the door refuses, and what it removes from the others.

Rewrites come first: session ids and parameters, then the order of the query. So filters judge the path that would be
stored. Then all extensions are checked at once, and the first other filter that objects gives its name to the refusal.
"""

import difflib
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from usher.door.url_rewrite import (
    ParameterOrderRewrite,
    ParameterRewrite,
    SessionRewrite,
    UrlRewrite,
)
from usher.errors import BadInput
from usher.urls import MAX_PATH

Filter = Mapping[str, Any]
Check = Callable[
    [str, str], str
]  # the path with and without its query → the objection, or an empty text

MAX_NAME: Final = 60
MAX_PATTERN: Final = 200
MAX_TRIES: Final = 10 * MAX_PATH**2  # steps of a pattern on the worst path: about a second

_TOKEN: Final = (
    re.compile(  # of a regular expression: an atom, its quantifier, and lazy or possessive
        r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!>]|<[=!]|P<\w+>))?|[^\\])"
        r"([*+?]|\{[0-9]+\}|\{[0-9]*,[0-9]*\})?([?+]?)",
        re.DOTALL,
    )
)
_FOREIGN: Final = re.compile(r"\\[^\WdDwWsSbBAZ]")  # escapes that no path needs: \1, \x41

_SLOW: Final = (
    "it could be too slow: begin it with ^, use fewer * and +, repeat no group, refer to none"
)


@dataclass(frozen=True, slots=True)
class FilterRefusal:
    """The filter that refuses a path, and why."""

    name: str
    detail: str


CompiledFilter = UrlRewrite | frozenset[str] | Check


class FilterRule(NamedTuple):
    """How to compile a filter of this rule, and its keys, each with a description."""

    make: Callable[[Filter], CompiledFilter]
    does: str
    keys: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompiledFilters:
    """A compiled list of filters; false if it accepts every path unchanged."""

    rewrites: tuple[UrlRewrite, ...]
    endings: Mapping[str, str]
    checks: tuple[tuple[str, Check], ...]

    def __bool__(self) -> bool:
        return bool(self.rewrites or self.endings or self.checks)

    def apply(self, path: str) -> str | FilterRefusal:
        """The path to store, or the refusal, for the path and query of a canonical URL."""
        if self.rewrites and ("?" in path or ";" in path or "(" in path):
            for rewrite in self.rewrites:
                path = rewrite.rewrite(path)
        bare = path.partition("?")[0] if "?" in path else path
        # After a dot in an earlier part comes a slash, which no extension contains.
        if (ending := bare.rpartition(".")[2].lower()) in self.endings:
            return FilterRefusal(self.endings[ending], f"The path ends in .{ending}.")
        for name, check in self.checks:
            if detail := check(path, bare):
                return FilterRefusal(name, detail)
        return path


def compile(filters: Iterable[Filter]) -> CompiledFilters:  # noqa: A001 - as re does
    """Compile filters; raises BadInput that names the wrong filter."""
    compiled: dict[str, CompiledFilter | None] = {}
    for filter_ in filters:
        if (name := _name(filter_)) in compiled:
            raise BadInput(f"Filter {name!r}: another filter has the same name.")
        compiled[name] = _compile_one(name, filter_)
    pairs = list(compiled.items())
    rewrites = [item for item in compiled.values() if isinstance(item, UrlRewrite) and item]
    return CompiledFilters(
        tuple(sorted(rewrites, key=lambda item: isinstance(item, ParameterOrderRewrite))),
        {
            end: name
            for name, item in reversed(pairs)
            if isinstance(item, frozenset)
            for end in item
        },
        tuple((name, item) for name, item in pairs if callable(item)),
    )


def combine(general: Iterable[Filter], host: Iterable[Filter]) -> list[Filter]:
    """The general filters and those of the host, which replace general ones of the same name; none that is off."""
    by_name = {_name(filter_): filter_ for filter_ in (*general, *host)}
    return [filter_ for filter_ in by_name.values() if filter_.get("off") is not True]


def describe(given: Filter) -> str:
    """Describe a filter in one line: `long: refuses paths of more than 500 characters`."""
    name = _name(given)
    if _compile_one(name, given) is None:
        return f"{name}: off"
    rule = RULES[given["rule"]]
    values = [(rule.keys[key], given[key]) for key in rule.keys if key in given]
    words = [text.format(", ".join(x) if isinstance(x, list) else x) for text, x in values]
    return f"{name}: {rule.does} {' and '.join(words)}".rstrip()


def _name(given: object) -> str:
    name = given.get("name", given.get("rule")) if isinstance(given, Mapping) else None
    if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()):
        hint = f"A filter is an object with a rule, and a name of up to {MAX_NAME} characters."
        raise BadInput(f"This is not a filter: {str(given)[:60]!a}.", hint=hint)
    return name


def _compile_one(name: str, given: Filter) -> CompiledFilter | None:
    off = given.get("off", False)
    if not isinstance(off, bool):
        raise BadInput(f"Filter {name!r}: off: true or false is wanted.")
    if off and "rule" not in given:
        _check_words(name, given, ["name", "off"])
        return None
    _check_words(name, [str(given.get("rule"))], list(RULES))
    rule = RULES[given["rule"]]
    _check_words(name, given, [*rule.keys, "name", "rule", "off"])
    try:
        compiled = rule.make(given)
    except ValueError as error:
        raise BadInput(f"Filter {name!r}: {error}.") from error
    return None if off else compiled


def _check_words(name: str, words: Iterable[str], known: list[str]) -> None:
    for word in words:
        if word not in known:
            near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
            raise BadInput(f"Filter {name!r}: {str(word)[:60]!a} is unknown.", hint=hint)


def _length(given: Filter) -> Check:
    most = _count(given, "most")
    text = f"The path has more than {most} characters."
    return lambda path, _: text if len(path) > most else ""


def _depth(given: Filter) -> Check:
    most = _count(given, "most")
    text = f"The path is more than {most} parts deep."
    return lambda _, bare: text if bare.count("/") - bare.endswith("/") > most else ""


def _extension(given: Filter) -> frozenset[str]:
    endings = frozenset(ending.lower().removeprefix(".") for ending in _texts(given, "any"))
    if not all(re.fullmatch(r"[a-z0-9_+-]+", ending) for ending in endings):
        raise ValueError("any: an extension is letters and digits, such as jpg")
    return endings


def _repeats(given: Filter) -> Check:
    most = _count(given, "most")

    def check(_: str, bare: str) -> str:
        if bare.count("/") <= most:
            return ""
        parts = bare.split("/")
        if len(parts) - len(set(parts)) < most:
            return ""
        [(part, times)] = Counter(bare[1:].removesuffix("/").split("/")).most_common(1)
        return f"The part {part[:60]!r} comes {times} times." if times > most else ""

    return check


def _path(given: Filter) -> Check:
    """Refuse paths that match the first pattern and not the second; either may be missing."""
    if not given.keys() & {"matches", "not_matches"}:
        raise ValueError("matches or not_matches is wanted")
    bad = _pattern(given, "matches") if "matches" in given else re.compile("")
    good = _pattern(given, "not_matches") if "not_matches" in given else re.compile(r"(?!)")
    what = f"matches {bad.pattern}" if "matches" in given else f"does not match {good.pattern}"
    return lambda path, _: f"The path {what}." if bad.search(path) and not good.search(path) else ""


def _query(given: Filter) -> ParameterRewrite:
    keep = given.get("keep")
    if keep in ("all", "none"):
        return ParameterRewrite(frozenset(), only=keep == "none")
    return ParameterRewrite(_texts(given, "keep", "all, none or "), only=True)


def _count(given: Filter, key: str) -> int:
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key}: a whole number from 1 on is wanted")
    return value


def _texts(given: Filter, key: str, other: str = "") -> frozenset[str]:
    value = given.get(key)
    if not (isinstance(value, list) and value and all(isinstance(text, str) for text in value)):
        raise ValueError(f"{key}: {other}a list of texts is wanted")
    return frozenset(map(unquote, value))


def _pattern(given: Filter, key: str) -> re.Pattern[str]:
    """Compile a regular expression, unless a path exists on which it takes too long: Python cannot stop it."""
    value = given[key]
    if not isinstance(value, str) or not 0 < len(value) <= MAX_PATTERN:
        raise ValueError(f"{key}: a regular expression of 1 to {MAX_PATTERN} characters is wanted")
    try:
        with warnings.catch_warnings(action="error"):
            pattern = re.compile(value)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(f"{key}: not a regular expression ({error})") from error
    if _tries(value) > MAX_TRIES:
        raise ValueError(f"{key}: {_SLOW}")
    return pattern


def _tries(pattern: str) -> float:
    """An upper bound of the steps of a pattern on the worst path: starts times choices times runs."""
    tokens = _TOKEN.findall(pattern.removeprefix("(?i)"))
    ways, run, choices = 1.0, 1, [1.0]
    for (atom, often, mode), follows in zip(tokens, [*tokens[1:], ("", "", "")], strict=False):
        least, most = _times(often)
        if atom.startswith("("):
            choices.append(math.inf if often else 1)
        elif atom == "|":
            choices[-1] += 1
        elif atom == ")":
            ways *= choices.pop() * (most - least + 1 if most == 1 else math.inf)
        elif _FOREIGN.fullmatch(atom):
            return math.inf
        elif least == most or mode == "+" or _ends(atom, follows):
            run = max(run, most)
        else:
            ways *= most - least + 1
    anchored = choices == [1] and pattern.startswith(("^", "(?i)^"))
    return ways * run * choices[0] * (1 if anchored else MAX_PATH)


def _times(often: str) -> tuple[int, int]:
    if not often.startswith("{"):
        return {"": (1, 1), "?": (0, 1), "*": (0, MAX_PATH), "+": (1, MAX_PATH)}[often]
    least, comma, most = often[1:-1].partition(",")
    return int(least or 0), int(most or (MAX_PATH if comma else least))


def _ends(atom: str, follows: tuple[str, str, str]) -> bool:
    """Whether a run of the atom can end in one place only: no character matches both it and the next atom."""
    after, often, _ = follows
    if not after:
        return True  # nothing follows that could fail
    if after in {")", "|", "^", r"\b", r"\B"} or after[0] == "(" or _times(often)[0] == 0:
        return False
    fits = [char for char in map(chr, range(33, 127)) if re.fullmatch(atom, char, re.IGNORECASE)]
    return not any(re.fullmatch(after, char, re.IGNORECASE) for char in fits)


RULES: Final[Mapping[str, FilterRule]] = {
    "length": FilterRule(_length, "refuses paths", {"most": "of more than {} characters"}),
    "depth": FilterRule(_depth, "refuses paths", {"most": "more than {} parts deep"}),
    "repeats": FilterRule(_repeats, "refuses paths", {"most": "with one part more than {} times"}),
    "extension": FilterRule(_extension, "refuses paths", {"any": "with the extensions {}"}),
    "path": FilterRule(
        _path, "refuses paths that", {"matches": "match {}", "not_matches": "do not match {}"}
    ),
    "query": FilterRule(_query, "keeps of the query", {"keep": "{}"}),
    "parameters": FilterRule(
        lambda given: ParameterRewrite(_texts(given, "drop"), only=False),
        "drops from the query",
        {"drop": "{}"},
    ),
    "sessions": FilterRule(lambda _: SessionRewrite(), "takes session ids out", {}),
    "order": FilterRule(
        lambda _: ParameterOrderRewrite(), "puts parameters in the order of their names", {}
    ),
}
