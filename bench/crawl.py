"""Compares a whole crawl of a documentation tree with Scrapy and with a client that only fetches."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import frame
from crawl_contenders import Bare, Nginx, Ran, Scrapy, Side, Usher
from frame import Bench, Measure, PeerMissing

TREES = ("/usr/share/doc/python3.11/html", "/usr/share/doc/postgresql-doc-15/html")
QUICK_PAGES, MAX_QUICK_PAGE_BYTES = 120, 60_000
TARGETS = """targets: at least 2 times Scrapy's pages in a CPU-second, our database included, and in pages a second"""
WORLD = """nginx (one worker, gzip) serves the tree on this machine, and all processes share its cores; politeness
off, robots.txt obeyed by both crawlers. Ours: `usher mgmt`, `usher crawler` and the embedded PostgreSQL with default
settings, from the first admitted page to the last reported chunk; all links go through the door, all pages into WARC
files. Scrapy: its latest release with its broad-crawl settings, a LinkExtractor, this site only, each page exported
as an item of its URL, title, text length and body hash to a JSON-lines file, log level warning. The limit fetches a
list of the same pages with our own client and does nothing else. CPU counts every process of a contender, without
nginx"""


def run(bench: Bench) -> list[Measure]:
    tree = next((Path(name) for name in TREES if Path(name).is_dir()), None)
    if tree is None:
        raise PeerMissing("no documentation tree: apt-get install python3.11-doc nginx-light")
    with ExitStack() as ends:
        home = ends.enter_context(frame.scratch())
        if bench.quick:
            tree = smaller(tree, home / "tree")
            bench.note(
                f"--quick: {QUICK_PAGES} of the smaller pages; other pages that they link to do not exist"
            )
        nginx = ends.enter_context(Nginx(tree, home))
        contenders: dict[str, Side] = {"usher": Usher(home), "limit": Bare(home)}
        try:
            contenders["scrapy"] = Scrapy(home, frame.peer_venv("scrapy", Scrapy.needs))
        except PeerMissing as error:
            bench.note(f"without scrapy: {error}")
        figures: dict[str, list[Ran]] = {name: [] for name in contenders}
        names = list(contenders)
        for turn in range(2 if bench.quick else 5):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                figures[name].append(contenders[name].crawl(nginx))
    for words in (TARGETS, WORLD):
        bench.note(" ".join(words.split()))
    pages = {name: sorted({run.pages for run in runs}) for name, runs in figures.items()}
    bench.note(f"pages fetched by each: {pages}")
    bench.note(f"CPU seconds of Usher per 1,000 pages: {split(figures['usher'])}")
    return measures(figures)


def smaller(tree: Path, to: Path) -> Path:
    """Copy a part of the tree: its first page and some pages that are not large."""
    paths = sorted(tree.rglob("*.html"))
    pages = [path for path in paths if path.stat().st_size < MAX_QUICK_PAGE_BYTES]
    for page in [tree / "index.html", *pages[:QUICK_PAGES]]:
        copy = to / page.relative_to(tree)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    return to


def split(ran: list[Ran]) -> dict[str, float]:
    last = ran[-1]
    return {name: round(1000 * cpu / last.pages, 2) for name, cpu in last.by_process.items()}


def measures(figures: Mapping[str, list[Ran]]) -> list[Measure]:
    def taken(what: str) -> dict[str, list[float]]:
        return {name: [getattr(run, what) for run in runs] for name, runs in figures.items()}

    return [
        frame.measured("pages a second", "pages/s", taken("rate"), better="higher"),
        frame.measured("pages in a CPU-second", "pages", taken("by_cpu"), better="higher"),
        frame.measured("CPU for 1,000 pages", "s", taken("cpu_for_1000")),
        frame.measured("peak memory of all processes", "MB", taken("megabytes")),
    ]


if __name__ == "__main__":
    frame.main("crawl", run)
