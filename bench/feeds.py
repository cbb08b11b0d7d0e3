"""Compares first and repeated polls of feeds with reader, and the fast parser with feedparser."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import frame
from feeds_contenders import Alone, Site, Whole
from frame import Bench, Measure, PeerMissing

READER = ["reader==3.26", "sgmllib3k==1.0.0"]  # the second is a dependency of its feedparser
# Feeds and items of each: for first polls, and for polls without news.
SIZES = {True: ((32, 20), (160, 1)), False: ((300, 20), (1_000, 5))}
WORKERS = 1, 4, 10
AT_ONCE = 32  # concurrent polls in one process, as in a job
TARGETS = """targets for the whole path: at least 2 times reader for first polls, 3 times for polls without news;
the fast parser 15 times feedparser as reader uses it"""
WHAT = """whole path: jobs of the queue, from before they are added until the last is in the log, run by a manager with
two processes; fetched, parsed and kept in PostgreSQL; links are not sent to the door unless said so, and words and
near-copies are taken by a job that comes later (reader does neither). poll alone: the same in one process without jobs.
reader: SQLite in a file, update_feeds with as many threads as are fastest. All poll the same nginx, each feed at an
address of its own, one contender after the other"""

Side = Alone | Whole


def contenders(bench: Bench, dsn: str, home: Path, ends: ExitStack) -> dict[str, Side]:
    """Return Usher in two variants, and reader if it can be installed."""
    alone = Alone("usher", sys.executable, dsn, home, ends)
    alone.at_once = AT_ONCE
    found: dict[str, Side] = {"usher": Whole(dsn, home, alone, ends), "usher, poll alone": alone}
    try:
        python = str(frame.peer_venv("reader", READER))
        found["reader"] = Alone("reader", python, dsn, home / "reader.sqlite", ends)
    except (PeerMissing, OSError) as error:
        bench.note(f"reader left out: {error}")
    return found


def known(sides: Mapping[str, Side], site: Site, *, plain: bool) -> None:
    """Let each contender poll these feeds once."""
    for name, side in sides.items():
        if name != "usher, poll alone":  # it uses the same database
            side.subscribe(site.urls(plain=plain))
            side.poll(site.size)


def tuned(bench: Bench, reader: Alone, site: Site) -> None:
    """Return the number of threads with which reader is fastest for feeds without news, where threads help most."""
    reader.at_once = WORKERS[1]
    if not bench.quick:
        taken = {}
        for workers in WORKERS:
            reader.at_once = workers
            taken[workers] = min(reader.poll(site.size) for _ in range(2))
        reader.at_once = min(taken, key=taken.__getitem__)
    bench.note(f"reader polls with {reader.at_once} threads")


def first(side: Side, site: Site) -> float:
    side.subscribe(site.urls(plain=False))
    return site.size / side.poll(site.size)


def again(side: Side, site: Site) -> float:
    return len(site.names) / side.poll(site.size)


def to_the_door(side: Whole, site: Site) -> float:
    side.subscribe(site.urls(plain=False), knocks=True)
    return site.size / side.poll(site.size)


def shown(name: str, unit: str, figures: Mapping[str, Sequence[float]]) -> Iterator[Measure]:
    """Measure the whole path and the poll alone, each against reader."""
    peers = {who: taken for who, taken in figures.items() if not who.startswith("usher")}
    for who, words in (("usher", "whole path"), ("usher, poll alone", "poll alone")):
        found = {"usher": figures[who], **peers}
        yield frame.measured(f"{name}, {words}", unit, found, better="higher")


def polling(bench: Bench, sides: Mapping[str, Side], read: Site, asked: Site) -> Iterator[Measure]:
    whole = sides["usher"]
    known(sides, asked, plain=False)
    if isinstance(reader := sides.get("reader"), Alone):
        tuned(bench, reader, asked)
    turns: dict[str, Callable[[], float]]
    bench.say("feeds that have nothing new, and say so")
    turns = {name: partial(again, side, asked) for name, side in sides.items()}
    figures = frame.interleaved(turns, bench.repeats)
    yield from shown("re-poll, nothing new (304)", "feeds/s", figures)
    bench.say("feeds that have nothing new, and do not say so")
    known(sides, read, plain=True)
    turns = {name: partial(again, side, read) for name, side in sides.items()}
    figures = frame.interleaved(turns, bench.repeats)
    yield from shown("re-poll, the same bytes (200)", "feeds/s", figures)
    bench.say("feeds for the first time")
    turns = {name: partial(first, side, read) for name, side in sides.items()}
    if isinstance(whole, Whole):
        turns["door"] = partial(to_the_door, whole, read)
    figures = frame.interleaved(turns, bench.repeats)
    door = figures.pop("door", [])
    yield from shown("first poll", "items/s", figures)
    what = "first poll, whole path and links to the door"
    yield frame.measured(what, "items/s", {"usher": door}, better="higher")


def parsing(bench: Bench, side: Alone, site: Site) -> Iterator[Measure]:
    """Measure the fast parser against feedparser, in one process."""
    bench.say("parsing alone")
    taken: list[dict[str, float]] = [
        side.child.ask("parsed", site.bodies())[1] for _ in range(bench.repeats)
    ]
    figures = {name: [one[name] for one in taken] for name in taken[0]}
    yield frame.measured("parse alone", "items/s", figures, better="higher")


def measure(bench: Bench, dsn: str, ends: ExitStack) -> list[Measure]:
    home = ends.enter_context(frame.scratch())
    sites = []
    for name, (feeds, items) in zip(("read", "asked"), SIZES[bench.quick], strict=True):
        (home / name).mkdir()
        sites.append(ends.enter_context(Site(home / name, feeds, items)))
    sides = contenders(bench, dsn, home, ends)
    alone = sides["usher, poll alone"]
    found = list(parsing(bench, alone, sites[0])) if isinstance(alone, Alone) else []
    return [*found, *polling(bench, sides, *sites)]


async def with_database(bench: Bench) -> list[Measure]:
    async with frame.database() as dsn:
        with ExitStack() as ends:
            return measure(bench, dsn, ends)


def run(bench: Bench) -> list[Measure]:
    """Compares first and repeated polls of feeds with reader, and the fast parser with feedparser."""
    bench.note(TARGETS)
    bench.note(WHAT)
    return asyncio.run(with_database(bench))


if __name__ == "__main__":
    frame.main("feeds", run)
