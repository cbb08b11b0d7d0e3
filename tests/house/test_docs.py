"""The pages in docs/ and the pages in the root refer to files, functions and headings that exist."""

import ast
import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGES = sorted([*TREE.glob("*.md"), *TREE.glob("docs/**/*.md"), TREE / "bench" / "README.md"])
ARCHITECTURE = TREE / "docs" / "architecture.md"
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# A path of the project: with a folder that the project has, or a file in the root.
PATH = re.compile(r"(?:src|docs|tests|bench|examples|scripts|\.ci)/[\w./{}*-]*|[\w.]+\.(?:md|toml)")
MIN_RULES = 40


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_links_between_pages_work(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", CODE.sub("", text))


def test_paths_in_the_architecture_exist() -> None:
    paths = [span for span in spans(ARCHITECTURE.read_text("utf-8")) if PATH.fullmatch(span)]
    assert len(paths) > 100
    assert [path for path in paths if not (TREE / path).exists()] == []


def definitions(path: Path) -> set[str]:
    """Return the names that a Python file defines, with methods as Class.method, or that an SQL file defines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        functions = re.findall(r"(?:function|table|view) (?:if not exists )?([\w.]+)", text)
        return {*functions, *re.findall(r"^-- name: (\w+)", text, re.MULTILINE)}
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{child.name}" for child in node.body if hasattr(child, "name")}
    return names


def rules() -> list[tuple[str, list[str]]]:
    """Return the rows of "Where is …?": the thing, and the code spans of its place."""
    text = ARCHITECTURE.read_text("utf-8").split("\n## Where is …?\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [(cells[0].strip(), spans(cells[1])) for cells in rows if cells[0].strip() != "what"]


@pytest.mark.parametrize(("thing", "place"), rules(), ids=lambda value: str(value)[:50])
def test_the_functions_in_the_architecture_exist(thing: str, place: list[str]) -> None:
    """In a row, each name that follows a path is defined in that file."""
    assert place, f"name the file for {thing}"
    defined: set[str] | None = None
    for span in place:
        if PATH.fullmatch(span):
            path = TREE / span
            defined = definitions(path) if path.suffix in {".py", ".sql"} else None
        else:
            assert defined is not None, f"`{span}` follows no file"
            assert span in defined


def test_the_architecture_names_many_rules() -> None:
    assert len(rules()) >= MIN_RULES


def modules_by_package() -> list[str]:
    """Return the modules in the tables of "Packages", as paths."""
    text = ARCHITECTURE.read_text("utf-8").split("\n## Packages\n")[1].split("\n## ")[0]
    modules = []
    for section in text.split("\n### ")[1:]:
        package = re.findall(r"`(src/usher/[\w/]*)`", section)[0]
        modules += [package + name for name in re.findall(r"`([\w/]+\.py)`", section)]
    return modules


def test_the_architecture_names_every_module_once() -> None:
    modules = modules_by_package()
    paths = (TREE / "src" / "usher").rglob("*.py")
    existing = [str(path.relative_to(TREE)) for path in paths if not path.stem.startswith("__")]
    assert sorted(modules) == sorted(existing), "list each module in docs/architecture.md"


def log_events() -> set[str]:
    """Return the events of all log calls in src: the texts in their first argument."""
    events = set()
    for path in (TREE / "src" / "usher").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            logger = getattr(node.func.value, "id", getattr(node.func.value, "attr", ""))
            if logger.lower().strip("_") == "log" and node.args:
                texts = [part for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
                events |= {text.value for text in texts if isinstance(text.value, str)}
    return events


def test_every_log_event_is_documented() -> None:
    pages = [TREE / "docs" / name for name in ("metrics.md", "http.md")]
    documented = {span for page in pages for span in spans(page.read_text("utf-8"))}
    events = log_events()
    assert len(events) > 50
    assert sorted(events - documented) == []
