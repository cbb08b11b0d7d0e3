"""A whole crawl of a real documentation tree beside Scrapy, and beside a client that only fetches."""

import sys

# bench/ goes last: a bench may have the name of a standard module (queue), which others must still find.
sys.path.append(sys.path.pop(0))

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import frame
from crawl_sides import Bare, Nginx, Ran, Scrapy, Side, Usher
from frame import Bench, Measure, PeerMissing

TREES = ("/usr/share/doc/python3.11/html", "/usr/share/doc/postgresql-doc-15/html")
FEW, SMALL = 120, 60_000  # pages, bytes, with --quick
TARGETS = """targets: at least 2 times Scrapy's pages in a CPU-second, our database included, and in pages a second"""
WORLD = """the tree is served by nginx (one worker, gzip) on this machine, whose cores everybody shares; politeness off,
robots.txt obeyed by both crawlers. Ours: `usher mgmt`, `usher crawler` and the embedded PostgreSQL as they come, from
the first page admitted to the last chunk reported; every page's links go through the door, every page into a WARC file.
Scrapy: its latest release with its broad-crawl settings, a LinkExtractor, this site only, each page exported as an item
of its URL, title, text length and body hash to a JSON-lines file, log level warning. The limit fetches a list of the
same pages with our own client and does nothing else. CPU counts every process of a contender, without nginx"""


def run(bench: Bench) -> list[Measure]:
    tree = next((Path(one) for one in TREES if Path(one).is_dir()), None)
    if tree is None:
        raise PeerMissing("no documentation tree: apt-get install python3.11-doc nginx-light")
    with ExitStack() as ends:
        home = ends.enter_context(frame.scratch())
        if bench.quick:
            tree = smaller(tree, home / "tree")
            bench.note(f"--quick: {FEW} of the smaller pages; what else they link to is not there")
        nginx = ends.enter_context(Nginx(tree, home))
        contenders: dict[str, Side] = {"usher": Usher(home), "limit": Bare(home)}
        try:
            contenders["scrapy"] = Scrapy(home, frame.peer_venv("scrapy", Scrapy.needs))
        except PeerMissing as error:
            bench.note(f"scrapy left out: {error}")
        figures: dict[str, list[Ran]] = {name: [] for name in contenders}
        names = list(contenders)
        for turn in range(2 if bench.quick else 5):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                figures[name].append(contenders[name].crawl(nginx))
    for words in (TARGETS, WORLD):
        bench.note(" ".join(words.split()))
    pages = {name: sorted({one.pages for one in ran}) for name, ran in figures.items()}
    bench.note(f"pages that each fetched: {pages}")
    bench.note(f"where ours went, CPU seconds per 1,000 pages: {split(figures['usher'])}")
    return measures(figures)


def smaller(tree: Path, to: Path) -> Path:
    """A part of the tree: its first page and some that are not large."""
    pages = [one for one in sorted(tree.rglob("*.html")) if one.stat().st_size < SMALL]
    for one in [tree / "index.html", *pages[:FEW]]:
        place = to / one.relative_to(tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one, place)
    return to


def split(ran: list[Ran]) -> dict[str, float]:
    last = ran[-1]
    return {name: round(1000 * one / last.pages, 2) for name, one in last.by_process.items()}


def measures(figures: Mapping[str, list[Ran]]) -> list[Measure]:
    def taken(what: str) -> dict[str, list[float]]:
        return {name: [getattr(one, what) for one in ran] for name, ran in figures.items()}

    return [
        frame.measured("pages a second", "pages/s", taken("rate"), better="higher"),
        frame.measured("pages in a CPU-second", "pages", taken("by_cpu"), better="higher"),
        frame.measured("CPU for 1,000 pages", "s", taken("cpu_for_1000")),
        frame.measured("peak memory of all processes", "MB", taken("megabytes")),
    ]


if __name__ == "__main__":
    frame.main("crawl", run)
