"""Compares the main text that Usher indexes with that of other extractors, on real articles with a known text."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import gzip
import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import frame
from frame import Bench, Measure, PeerMissing
from usher.crawl.page.parse import PageDocument, extract_documents
from usher.urls import Url, parse

ARTICLES = frame.ROOT.parent / "shared" / "corpora" / "html" / "articles"
PEERS = {
    "trafilatura": ["trafilatura==2.3.1", "lxml[html-clean]"],
    "readability": ["readability-lxml==0.9"],
    "resiliparse": ["resiliparse==1.1.0"],
}
BOILERPLATE = ("privacy policy", "advertisement", "cookies")
SHINGLE_WORDS = 4
MAX_MENU_WORDS = 4  # of a line
MIN_MENU_LINES = 3  # in a row; a single short line is a byline, a date or the credit of a picture
SNIPPET_CHARACTERS = 240
TARGETS = """targets: F1 at least .93, recall at least .96, at least 150 pages in a CPU-second, at most 5 pages with
each phrase, at most 3 snippets with a menu"""
WORLD = """the metric is that of the scrapinghub article-extraction-benchmark: multisets of runs of four words,
precision and recall of each page, their means over all pages, and F1 of the two means. The text is what Usher indexes
as the body of the document. CPU of Usher counts everything that the index builder does with a page (charset, parser,
metadata, language, hashes); the peers get decoded text and return only the main text. A menu is three lines in a row
of at most 4 words that are not in the article; a snippet is the first 240 characters of the text"""

Shingles = Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Extraction:
    """The texts of all pages by page, and the CPU time of the extractor."""

    texts: Mapping[str, str]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.texts) / self.seconds


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over all pages."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / (self.precision + self.recall)


def run(bench: Bench) -> list[Measure]:
    if not ARTICLES.is_dir():
        bench.note("skipped: ../shared/corpora/html/articles does not exist")
        return []
    truth = articles()
    documents: dict[str, PageDocument] = {}
    rates: dict[str, list[float]] = {}
    texts: dict[str, Mapping[str, str]] = {}
    for turn in range(2 if bench.quick else 3):
        for name, extraction in extractions(
            bench, documents, ask_peers=turn == 0 or not bench.quick
        ):
            rates.setdefault(name, []).append(extraction.rate)
            texts[name] = extraction.texts
    qualities = {name: quality(truth, its) for name, its in texts.items()}
    note_boilerplate(bench, truth, documents)
    for words in (TARGETS, WORLD):
        bench.note(" ".join(words.split()))
    fastest = {name: [max(figures)] for name, figures in rates.items()}
    return [
        *(
            frame.measured(
                name,
                "of 1",
                {who: [getattr(its, name)] for who, its in qualities.items()},
                better="higher",
            )
            for name in ("f1", "precision", "recall")
        ),
        frame.measured("pages in a CPU-second", "pages", fastest, better="higher"),
    ]


def articles() -> dict[str, str]:
    """Return the article of each page."""
    data: dict[str, dict[str, Any]] = json.loads(
        gzip.decompress((ARTICLES / "ground-truth.json.gz").read_bytes())
    )
    return {page: fields.get("articleBody") or "" for page, fields in data.items()}


def extractions(
    bench: Bench, documents: dict[str, PageDocument], *, ask_peers: bool
) -> list[tuple[str, Extraction]]:
    """Run Usher, and the peers that can be installed."""
    results = [("usher", extract_ours(documents))]
    for name, needs in PEERS.items() if ask_peers else ():
        try:
            results.append((name, extract_with(name, frame.peer_venv(name, needs))))
        except PeerMissing as error:
            bench.note(f"without {name}: {error}")
    return results


def extract_ours(documents: dict[str, PageDocument]) -> Extraction:
    """Extract the documents as the index builder does."""
    url = parse("https://example.org/article")
    assert isinstance(url, Url)  # noqa: S101 - a constant
    bodies = {
        file.name.partition(".")[0]: gzip.decompress(file.read_bytes())
        for file in sorted((ARTICLES / "pages").glob("*.html.gz"))
    }
    began = process_time()
    for page, body in bodies.items():
        documents[page] = extract_documents(body, url, media_type="text/html")[0]
    seconds = process_time() - began
    return Extraction({page: document.text for page, document in documents.items()}, seconds)


def extract_with(name: str, python: Path) -> Extraction:
    script = Path(__file__).with_name("extraction_peers.py")
    command = [str(python), str(script), name, str(ARTICLES / "pages")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise PeerMissing(result.stderr.strip().splitlines()[-1])
    return Extraction(**json.loads(result.stdout))


def shingles(text: str) -> Shingles:
    words = re.findall(r"\w+", text)
    count = max(1, len(words) - SHINGLE_WORDS + 1)
    return Counter(filter(None, (tuple(words[at : at + SHINGLE_WORDS]) for at in range(count))))


def quality(truth: Mapping[str, str], texts: Mapping[str, str]) -> Quality:
    precisions, recalls = [], []
    for page, article in truth.items():
        wanted, given = shingles(article), shingles(texts.get(page, ""))
        common = (wanted & given).total()
        if given:
            precisions.append(common / given.total())
        if wanted:
            recalls.append(common / wanted.total())
    return Quality(fmean(precisions), fmean(recalls))


def note_boilerplate(
    bench: Bench, truth: Mapping[str, str], documents: Mapping[str, PageDocument]
) -> None:
    """Count the pages whose text contains what is no part of an article."""
    pages = len(documents)
    for phrase in BOILERPLATE:
        count = sum(phrase in document.text.lower() for document in documents.values())
        wanted = sum(phrase in article.lower() for article in truth.values())
        bench.note(
            f"{phrase!r} is in the main text of {count} of {pages} pages, and in {wanted} articles"
        )
    runs = [menu_lines(documents[page].text, article) for page, article in truth.items()]
    menus = sum(run >= MIN_MENU_LINES for run in runs)
    short = sum(0 < run < MIN_MENU_LINES for run in runs)
    bench.note(
        f"the snippet has a menu on {menus} of {pages} pages, and one or two short lines on {short}"
    )


def menu_lines(text: str, article: str) -> int:
    """Return how many lines in a row at the beginning of the text are short and not in the article."""
    article = " ".join(article.split())
    longest = run = 0
    for line in text[:SNIPPET_CHARACTERS].splitlines()[:-1]:
        words = line.split()
        run = run + 1 if len(words) <= MAX_MENU_WORDS and " ".join(words) not in article else 0
        longest = max(longest, run)
    return longest


if __name__ == "__main__":
    frame.main("extraction", run)
