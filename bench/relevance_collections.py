"""What bench/relevance.py searches: judged collections, and manuals whose own index names the page of each term."""

import gzip
import hashlib
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

from msgspec import Struct

from frame import ROOT
from search_contenders import NOW, TREES, document
from usher.index import chunk_file
from usher.index.document import IndexDocument

COLLECTIONS = ROOT.parent / "shared" / "corpora" / "ir"
PARSER = ROOT / "src" / "usher" / "crawl" / "page"
MIN_TERM_LETTERS = 3
NDCG_HITS, RECALL_HITS, MRR_HITS = 10, 100, 10

Judgements = Mapping[str, int]  # grade by document


class JudgedQuery(Struct, frozen=True):
    """A query and the grade of each judged document; 0 is not relevant."""

    text: str
    grades: dict[str, int]


class Collection(Struct, frozen=True):
    """Documents, by their URL as id, and judged queries."""

    name: str
    documents: list[IndexDocument]
    queries: list[JudgedQuery]


def collections() -> Iterator[Collection]:
    """Yield the judged collections; none if they are not beside the project."""
    for folder in sorted(COLLECTIONS.glob("*/")):
        grades: dict[str, dict[str, int]] = {}
        for line in _lines(folder / "qrels.tsv.gz"):
            query, name, grade = line.split("\t")
            grades.setdefault(query, {})[_address(folder.name, name)] = int(grade)
        rows = [json.loads(line) for line in _lines(folder / "docs.jsonl.gz")]
        asked = [json.loads(line) for line in _lines(folder / "queries.jsonl.gz")]
        yield Collection(
            folder.name,
            [_document(folder.name, row) for row in rows],
            [
                JudgedQuery(row["text"], grades[row["id"]])
                for row in asked
                if any(grades.get(row["id"], {}).values())
            ],
        )


def manuals(limit: int, cache: Path) -> Iterator[Collection]:
    """Yield the installed manuals, each with at most `limit` terms of its index as queries."""
    for name, terms in (("python", _python_terms), ("postgresql", _postgresql_terms)):
        tree = Path(TREES[name])
        if not tree.exists():
            continue
        targets: dict[str, dict[str, int]] = {}
        for term, path in terms(tree):
            if sum(map(str.isalpha, term)) >= MIN_TERM_LETTERS:
                targets.setdefault(term, {})[f"http://{name}.example/{path}"] = 1
        chosen = random.Random(7).sample(sorted(targets), min(limit, len(targets)))  # noqa: S311
        queries = [JudgedQuery(term, targets[term]) for term in chosen]
        yield Collection(f"{name} manual", _pages(name, tree, cache), queries)


def ndcg(ranked: Sequence[str], grades: Judgements) -> float:
    """The discounted gain of the first hits as a share of the best possible, with gain 2^grade - 1."""
    ideal = sorted(grades.values(), reverse=True)
    return _gain([grades.get(name, 0) for name in ranked]) / _gain(ideal)


def recall(ranked: Sequence[str], grades: Judgements) -> float:
    """The share of relevant documents among the first hits."""
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant & set(ranked[:RECALL_HITS])) / len(relevant)


def reciprocal_rank(ranked: Sequence[str], grades: Judgements) -> float:
    """One divided by the rank of the first relevant document; 0 if it is not among the first hits."""
    ranks = (rank for rank, name in enumerate(ranked[:MRR_HITS], 1) if grades.get(name))
    return 1 / next(ranks, math.inf)


def _gain(grades: Sequence[int]) -> float:
    pairs = enumerate(grades[:NDCG_HITS], 2)
    return math.fsum((2.0**grade - 1) / math.log2(rank) for rank, grade in pairs)


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def _address(collection: str, name: str) -> str:
    """An address without words that a query could match."""
    return f"http://{collection}.example/{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _document(collection: str, row: Mapping[str, str]) -> IndexDocument:
    url = _address(collection, row["id"])
    return IndexDocument(
        key=url.removeprefix("http://"),
        url=url,
        host=f"{collection}.example",
        chunk=1,
        crawled=NOW,
        title=row["title"],
        body=row["text"],
        language="en",
    )


def _pages(name: str, tree: Path, cache: Path) -> list[IndexDocument]:
    """All pages of a manual as Usher reads them; read again when the code that reads them has changed."""
    sources = b"".join(path.read_bytes() for path in sorted(PARSER.rglob("*.py")))
    file = cache / f"manual-{name}-{hashlib.sha256(sources).hexdigest()[:12]}.idx"
    if not file.exists():
        cache.mkdir(exist_ok=True)
        paths = [
            (name, path, path.relative_to(tree).as_posix())
            for path in sorted(tree.rglob("*.html"))
            if path.is_file()
        ]
        with ProcessPoolExecutor(2) as pool:
            pages = [page for page in pool.map(document, paths, chunksize=20) if page]
        chunk_file.write(file, 1, pages)
    return list(chunk_file.read(file)[1])


def _python_terms(tree: Path) -> Iterator[tuple[str, str]]:
    """The terms of Sphinx's index, without the words in parentheses that tell them apart."""
    link = re.compile(r'<li>(?:<a href="([^"]+)">([^<]+)</a>|\s*([^<\s][^<]*?)\s*<ul>)')
    nested = re.compile(r'<li><a href="([^"]+)">\(')
    for path in sorted(tree.glob("genindex-?.html")):
        text, parent = path.read_text(encoding="utf-8"), ""
        for match in re.finditer(f"{nested.pattern}|{link.pattern}", text):
            inner, href, term, group = match.groups()
            if group:
                parent = group
            label = parent if inner else term
            if (target := inner or href) and label:
                name = unescape(label).split(" (")[0].strip()
                yield name, unquote(urldefrag(target)[0])


def _postgresql_terms(tree: Path) -> Iterator[tuple[str, str]]:
    """The terms of the book's index that name a page."""
    text = (tree / "bookindex.html").read_text(encoding="utf-8")
    entry = re.compile(r"<dt(?: id=\"[^\"]*\")?>(.*?)</dt>", re.DOTALL)
    for match in entry.finditer(text):
        term = unescape(re.sub(r"<[^>]+>", "", match[1].split("<a ", 1)[0])).strip(" ,\n")
        for href in re.findall(r'class="indexterm" href="([^"]+)"', match[1]):
            yield " ".join(term.split()), urldefrag(urljoin("", href))[0]
