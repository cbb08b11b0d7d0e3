"""Names and English stay plain (docs/adr/0023-plain-names.md).

Each check returns the places that violate a rule. Their number may not exceed the ceiling in `CEILINGS`. If you remove
some of them, lower the ceiling; never raise it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
SOURCES = sorted((TREE / "src").rglob("*.py"))
TEXT_SUFFIXES = {".py", ".sql", ".md", ".html", ".css", ".js", ".toml"}
TEXT_FOLDERS = ("src", "docs", "tests", "bench", "examples", "scripts")
MAX_LINES = 400
# Generated files, and this one, which has to name the words.
NOT_CHECKED = {
    "docs/conformance.md",
    "src/usher/schema/schema.sql",
    "tests/house/test_plain.py",
}

INDIRECT = re.compile(r"\b(?:who(?:m)?ever|(?:some|no|any|every)body)\b", re.IGNORECASE)
FORMULA = re.compile(r"\bComes from\b")
# Places where such a word is right; each entry explains itself.
ALLOWED_WORDS = {
    'user = "nobody"': "an account of the operating system",
}
# Class names that may occur more than once, at most ten.
ALLOWED_CLASSES: dict[str, str] = {}

# Stems of modules that say nothing about their content: metaphors, and participles without a noun.
UNCLEAR_MODULES = frozenset({
    "apart", "answering", "asking", "ballast", "behind", "building", "census", "chest", "chores", "crawling",
    "desk", "dial", "digesting", "draft", "errands", "facts", "feeding", "fleet", "found", "guest", "hall", "hands",
    "hearing", "home", "house", "indexing", "keeper", "keeping", "kin", "knocking", "leftovers", "learning", "line",
    "lines", "look", "making", "manners", "members", "memory", "missing", "names", "news", "nursery", "offering",
    "pacing", "packs", "papers", "parts", "performing", "places", "planning", "porch", "portrait", "press",
    "proofs", "quick", "reading", "recent", "rerunning", "running", "scales", "searched", "searching", "seating",
    "seats", "serving", "settling", "shelf", "shown", "sketch", "stage", "story", "tolerant", "taught", "trail",
    "trims", "troupe", "visit", "visiting", "voice", "whole", "window", "wish", "words", "workshop",
})  # fmt: skip
# Words that need a noun beside them in the name of a constant.
NO_NOUN = frozenset({
    "AGAIN", "ALIKE", "ALONE", "ALWAYS", "BIG", "EARLY", "ENOUGH", "EXTRA", "FEW", "FRESH", "HUGE", "KEPT", "LATE",
    "LATER", "LEAST", "LESS", "LITTLE", "LONG", "LONGEST", "MANY", "MORE", "MOST", "MUCH", "NEVER", "OFTEN",
    "OTHERS", "OURS", "OWN", "QUICK", "RARE", "SHORT", "SMALL", "SOME", "SOON", "SOONER", "THEIR", "THEIRS",
})  # fmt: skip
PLACEHOLDERS = frozenset({"found", "told", "made", "one", "asked", "heard", "known"})

Place = str


def relative(path: Path) -> str:
    return path.relative_to(TREE).as_posix()


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def texts() -> Iterator[Path]:
    folders = [path for folder in TEXT_FOLDERS for path in (TREE / folder).rglob("*")]
    for path in sorted([*folders, *TREE.glob("*.md")]):
        if path.suffix in TEXT_SUFFIXES and relative(path) not in NOT_CHECKED:
            yield path


def lines_matching(pattern: re.Pattern[str]) -> list[Place]:
    return [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line) and not any(allowed in line for allowed in ALLOWED_WORDS)
    ]


def indirect_subjects() -> list[Place]:
    """Sentences that name no actor."""
    return lines_matching(INDIRECT)


def formula_docstrings() -> list[Place]:
    """Docstrings that say where a value comes from and goes to instead of what the code does."""
    return lines_matching(FORMULA)


def repeated_class_names() -> list[Place]:
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{relative(path)}:{node.lineno}")
    return [
        f"{name}: {', '.join(where)}"
        for name, where in places.items()
        if len(where) > 1 and name not in ALLOWED_CLASSES
    ]


def stored_names(path: Path) -> Iterator[ast.Name]:
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node


def constants_without_noun() -> list[Place]:
    return [
        f"{relative(path)}:{node.lineno}: {node.id}"
        for path in SOURCES
        for node in stored_names(path)
        if node.id.isupper() and set(node.id.strip("_").split("_")) <= NO_NOUN
    ]


def unclear_modules() -> list[Place]:
    return [relative(path) for path in SOURCES if path.stem in UNCLEAR_MODULES]


def placeholder_variables() -> list[Place]:
    """Variables that are named by a participle instead of by what they hold."""
    return [
        f"{relative(path)}:{node.lineno}: {node.id}"
        for path in SOURCES
        for node in stored_names(path)
        if node.id in PLACEHOLDERS
    ]


def long_files() -> list[Place]:
    return [
        f"{relative(path)}: {number}"
        for path in texts()
        if path.suffix in {".py", ".sql"} and not re.match(r"\d{14}_", path.name)
        if (number := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    ]


CEILINGS: dict[Callable[[], list[Place]], int] = {
    indirect_subjects: 7,
    formula_docstrings: 0,
    repeated_class_names: 0,
    constants_without_noun: 4,
    unclear_modules: 0,
    placeholder_variables: 10,
    long_files: 0,
}


@pytest.mark.parametrize("check", CEILINGS, ids=lambda check: check.__name__)
def test_there_are_no_more_than_before(check: Callable[[], list[Place]]) -> None:
    places = check()
    assert len(places) <= CEILINGS[check], "\n".join(places)


def test_exceptions_are_few_and_explained() -> None:
    assert len(ALLOWED_WORDS) <= 15
    assert len(ALLOWED_CLASSES) <= 10
    assert all([*ALLOWED_WORDS.values(), *ALLOWED_CLASSES.values()])
