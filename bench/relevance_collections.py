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
from urllib.parse import unquote, urldefrag

from msgspec import Struct
from msgspec.structs import replace

from frame import ROOT
from search_contenders import NOW, TREES, document
from usher.anchor_text import MAX_ANCHORS_PER_PAGE, MAX_PAGES_PER_ANCHOR
from usher.crawl.page.parse import ParsedPage, parse_page
from usher.index import chunk_file
from usher.index.document import IndexDocument, with_links
from usher.messages.builder import AnchorCount, PageLinks
from usher.urls import Url
from usher.urls import parse as parse_url

COLLECTIONS = ROOT.parent / "shared" / "corpora" / "ir"
PARSER = ROOT / "src" / "usher" / "crawl" / "page"
MIN_TERM_LETTERS = 3
NDCG_HITS, RECALL_HITS, MRR_HITS = 10, 100, 10

INDEX_PAGES = re.compile(r"/(?:genindex[^/]*|bookindex|contents|py-modindex|index)\.html$")
# Questions of the acceptance, each with a pattern for the pages or sections that answer it.
SINGLE_QUERIES = {
    "python": {
        "how to open a file": r"library/functions.html#open|tutorial/inputoutput",
        "open()": r"library/functions.html#open",
        "print": r"library/functions.html#print",
        "dict": r"library/stdtypes.html#dict|library/functions.html#func-dict",
        "ValueError": r"library/exceptions.html#ValueError",
        "for loop": r"tutorial/controlflow.html#for|reference/compound_stmts.html#the-for",
        "decorator": r"glossary.html#term-decorator",
        "f-string": r"glossary.html#term-f-string|lexical_analysis.html#f-strings",
        "walrus operator": r"expressions.html#assignment|3.8.html#assignment|faq/design.html#.*assignment",
        "pathlib": r"library/pathlib.html",
    },
    "postgresql": {"upsert": r"sql-insert.html#SQL-ON-CONFLICT"},
}

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


class Manual(Collection, frozen=True):
    """A manual: `peer_pages` are its pages as other engines get them, `single_queries` what they should find first."""

    peer_pages: list[IndexDocument]
    single_queries: dict[str, str]


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


def manuals(limit: int, cache: Path) -> Iterator[Manual]:
    """Yield the installed manuals, each with at most `limit` entries of its index as queries.

    An entry is a line of the index as a reader sees it, `addFilter() (logging.Handler method)`, without the lines below
    it. It counts if all its links lead to one page. The design does not define its terms. Of many definitions this is
    one in which FTS5 comes close to the design's figures: .864 and .723, where the design has .873 and .691.
    """
    for name, entries in (("python", _python_entries), ("postgresql", _postgresql_entries)):
        tree = Path(TREES[name])
        if not tree.exists():
            continue
        targets: dict[str, set[str]] = {}
        for entry, path in entries(tree):
            if sum(map(str.isalpha, entry)) >= MIN_TERM_LETTERS:
                targets.setdefault(entry, set()).add(f"http://{name}.example/{path}")
        certain = sorted(entry for entry, pages in targets.items() if len(pages) == 1)
        chosen = random.Random(7).sample(certain, min(limit, len(certain)))  # noqa: S311
        queries = [JudgedQuery(entry, dict.fromkeys(targets[entry], 1)) for entry in chosen]
        pages = _with_links(name, _pages(name, tree, cache))
        peer_pages = [_whole_page(name, tree, page) for page in pages if not is_index(page.url)]
        yield Manual(f"{name} manual", pages, queries, peer_pages, SINGLE_QUERIES[name])


def is_index(url: str) -> bool:
    """Whether a page of a manual is an index or a table of contents."""
    return bool(INDEX_PAGES.search(url))


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


def _with_links(name: str, pages: Sequence[IndexDocument]) -> list[IndexDocument]:
    """The pages with the texts of links between them and their distance from the start, as a crawl reports them."""
    with ProcessPoolExecutor(2) as pool:
        parsed = list(pool.map(_links, [(name, page.url) for page in pages], chunksize=20))
    links = {page.url: parsed_page.links for page, parsed_page in zip(pages, parsed, strict=True)}
    texts: dict[str, dict[str, set[str]]] = {page.url: {} for page in pages}
    for page, parsed_page in zip(pages, parsed, strict=True):
        for anchor in parsed_page.anchors:
            if anchor.link in texts and anchor.link != page.url:
                texts[anchor.link].setdefault(anchor.text, set()).add(page.url)
    depths: dict[str, int] = {}
    reached = [f"http://{name}.example/index.html"]
    while reached := [url for url in dict.fromkeys(reached) if url not in depths]:
        depths |= dict.fromkeys(reached, max(depths.values(), default=-1) + 1)
        reached = [link for url in reached for link in links.get(url, ())]
    linked = []
    for page in pages:
        best = sorted(texts[page.url].items(), key=lambda pair: -len(pair[1]))
        counts = [
            AnchorCount(text, min(len(urls), MAX_PAGES_PER_ANCHOR))
            for text, urls in best[:MAX_ANCHORS_PER_PAGE]
        ]
        inlinks = len(set().union(*(urls for _, urls in best[:MAX_ANCHORS_PER_PAGE])))
        facts = PageLinks(page.key, depths.get(page.url, 0), inlinks, counts)
        linked.append(with_links(page, facts, is_first=True))
    return linked


def _links(page: tuple[str, str]) -> ParsedPage:
    name, address = page
    path = Path(TREES[name]) / unquote(address.removeprefix(f"http://{name}.example/"))
    url = parse_url(address)
    assert isinstance(url, Url)  # noqa: S101 - as it was made
    return parse_page(path.read_bytes(), url, media_type="text/html")


def _whole_page(name: str, tree: Path, page: IndexDocument) -> IndexDocument:
    """A page with all of its visible text, as other search engines get it."""
    path = tree / unquote(page.url.removeprefix(f"http://{name}.example/"))
    html = path.read_text(encoding="utf-8", errors="replace")
    visible = re.sub(r"(?s)<(script|style|head)\b.*?</\1>", " ", html)
    return replace(page, body=unescape(re.sub(r"<[^>]+>", " ", visible)))


def _python_entries(tree: Path) -> Iterator[tuple[str, str]]:
    """The entries of Sphinx's index and their pages."""
    token = re.compile(r'<li>|</li>|<a href="([^"]+)">(.*?)</a>|([^<>]+)(?=<)', re.DOTALL)
    for path in sorted(tree.glob("genindex-?.html")):
        text, depth, entry = path.read_text(encoding="utf-8"), 0, ""
        for match in token.finditer(text, text.find("<table")):
            href, label, words = match.groups()
            if href is None and not words:
                depth += 1 if match[0] == "<li>" else -1
                entry = "" if depth <= 1 and match[0] == "<li>" else entry
            elif depth == 1 and not entry:
                entry = unescape(re.sub(r"<[^>]+>", "", label or words)).strip()
            if href and depth == 1:
                yield entry, unquote(urldefrag(href)[0])


def _postgresql_entries(tree: Path) -> Iterator[tuple[str, str]]:
    """The entries of the book's index and their pages."""
    text, depth = (tree / "bookindex.html").read_text(encoding="utf-8"), 0
    for match in re.finditer(r"<dl|</dl>|<dt(?: id=\"[^\"]*\")?>(.*?)</dt>", text, re.DOTALL):
        if match[1] is None:
            depth += 1 if match[0] == "<dl" else -1
        elif depth == 1:
            entry = unescape(re.sub(r"<[^>]+>", "", match[1].split("<a ", 1)[0])).strip(" ,\n")
            for href in re.findall(r'class="indexterm" href="([^"]+)"', match[1]):
                yield " ".join(entry.split()), urldefrag(href)[0]
