"""Compares the door's speed with a plain insert of the same rows, by size of the guestbook; and its memory."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import json
import random
import resource
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, product
from operator import truediv
from pathlib import Path
from time import monotonic
from typing import Any

import frame
from frame import Bench, Measure
from usher.db.pool import Connection, Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Reason

SIZES = SMALL_SIZE, LARGE_SIZE = 512, 10_000
CASES = {"all known and not due": 1.0, "45 % known": 0.45, "all new": 0.0}
REAL = ("45 % known", LARGE_SIZE)  # the case nearest to a crawl
SHAPES = ((10_000, False), (10_000, True), (200_000, False))  # hosts, and whether one owns half
FACTOR, PRIME = 48_271, 2_147_483_647  # scatter the numbers of pages over hosts and paths
WARM_BATCHES = 12  # enough for driver and server to cache the plan
LIMIT = """limit: insert … select from unnest(…) on conflict do nothing of the same rows into seed 003's table with as
many rows, one transaction a batch, on the same server, through the same pool and driver. It gets numbers and paths:
it parses no URL, looks up no host, clock or filter, queues nothing (one index less), does not check the host, and
does not return which rows existed. It passes Python lists to the driver; packed_insert passes text, as the door does"""
NOTES = (
    " ".join(LIMIT.split()),
    "the pages of a batch are random pages of all hosts, the worst case; every answer is checked",
    "by: the ratio of two kinds in the same turn, for Usher and for the limit",
    "first batch: on a new connection, by a doorkeeper without cached hosts",
    "new pages stay: the guestbook and the limit's table grow by 1 to 2 M pages (--quick: 0.2 M)",
)

HOSTS = """
update work.settings set max_pages = 1000000000;
insert into work.domain (tld, number, name)
select d % 6 + 1, d / 6 + 1, 'agency-' || lpad(d::text, 6, '0') from generate_series(0, ({hosts} - 1) / 4) d;
insert into work.hosts (domain64, name, next_fetch, crawl_started)
select
    work.domain64_encode(tld.code, d / 6 + 1, i % 4),
    case when i % 4 > 0 then 's' || i % 4 || '.' else '' end || 'agency-' || lpad(d::text, 6, '0') || '.' || tld.name,
    now() - interval '1 day', now()
from generate_series(0, {hosts} - 1) i
cross join lateral (select i / 4 as d) join work.tld on tld.code = d % 6 + 1
order by i;
create table work.bare (
    id bigint generated always as identity primary key, domain64 bigint not null, last_modified timestamp,
    last_fetched timestamp, next_fetch timestamp not null, scheme integer not null default 1,
    content_type integer not null default 1, content_length integer not null default 0, path text not null,
    unique (domain64, path)
);
"""
# A root page for every host, and the pages of page(). Indexes are built afterwards, with free space.
PAGES = """
alter table work.{table} disable trigger user, drop constraint {table}_pkey, drop constraint {table}_domain64_path_key;
insert into work.{table} (domain64, path, next_fetch {columns})
select domain64, '/', now() + interval '30 days' {values} from work.hosts
union all
select domain64, '/news/2026/' || lpad(to_hex(mixed), 8, '0') || '-a-page.html', now() + interval '30 days' {values}
from (select n, n * 48271 % 2147483647 as mixed from generate_series(0::bigint, {rows} - 1) n)
join work.hosts on id = 1 + case when {giant} and n % 2 = 0 then 0 else mixed * mixed / 65536 % {hosts} end;
alter table work.{table} enable trigger user, add primary key (id);
alter table work.{table} add unique (domain64, path) with (fillfactor = 70);
alter index work.{table}_domain64_path_key reset (fillfactor);
"""
BARE_INSERT = b"""
insert into work.bare (domain64, path, next_fetch, scheme)
select page.*, %s, 1 from unnest(%s::bigint[], %s::text[]) page
on conflict do nothing
"""

Host = tuple[int, str]  # domain64, name
Page = tuple[int, str, str]  # domain64, name of the host, path
Outcome = tuple[float, float, dict[str, int]]  # start and end, answers by reason


@dataclass(frozen=True, slots=True)
class World:
    """The number of pages and hosts in the guestbook; with `giant` one host has every second page."""

    rows: int
    hosts: int
    giant: bool = False

    def __str__(self) -> str:
        whose = "hosts, one owns half" if self.giant else "hosts"
        return f"{short(self.rows)} pages of {short(self.hosts)} {whose}"


def short(number: int) -> str:
    return f"{number // 10**6} M" if number >= 10**6 else f"{number // 1000} k"


def page(number: int, world: World, hosts: Sequence[Host]) -> Page:
    mixed = number * FACTOR % PRIME
    place = 0 if world.giant and number % 2 == 0 else mixed * mixed // 65536 % world.hosts
    return *hosts[place], f"/news/2026/{mixed:08x}-a-page.html"


async def filled(dsn: str, world: World) -> list[Host]:
    """Insert hosts that are due, pages that are not, and the same pages in the plain table; return the hosts."""
    bare = asdict(world) | {"table": "bare", "columns": "", "values": ""}
    ours = {"table": "guestbook", "columns": ", state", "values": ", 'crawled'"}
    async with await connect(dsn) as conn, await connect(dsn) as other:
        await conn.execute(HOSTS.format(**bare).encode())
        await conn.execute("analyze")
        await asyncio.gather(
            conn.execute(PAGES.format(**bare | ours).encode()),
            other.execute(PAGES.format(**bare).encode()),
        )
        await conn.execute("vacuum analyze")
        await conn.execute("checkpoint")
        return await hosts_of(conn)


async def hosts_of(conn: Connection) -> list[Host]:
    found = await conn.execute("select domain64, name from work.hosts order by id")
    return [(domain64, name) for domain64, name in await found.fetchall()]


@dataclass(frozen=True, slots=True)
class Job:
    """URLs to knock for: new pages are numbered from `new` on, the known ones are every `parts`-th."""

    who: str
    urls: int
    batch: int
    known: float
    new: int
    part: int
    parts: int
    cold: bool = False
    unseen_hosts: bool = False

    def pages(self, world: World, hosts: Sequence[Host]) -> list[Page]:
        """Return the pages in random order, the same for all contenders."""
        chance = random.Random(self.new)  # noqa: S311 - not a secret
        known = round(self.urls * self.known)
        numbers = chance.sample(range(self.part, world.rows, self.parts), known)
        numbers += range(self.new, self.new + self.urls - known)
        chance.shuffle(numbers)
        if self.unseen_hosts:
            return [(0, f"www.newcomer-{number}.org", "/") for number in numbers]
        return [page(number, world, hosts) for number in numbers]


def say(words: object) -> None:
    print(json.dumps(words), flush=True)


async def work(dsn: str, world: World) -> None:
    """Read jobs from stdin, prepare each, wait for the start command, run it, and print the outcome."""
    async with Database(dsn) as db:
        door = Doorkeeper(db)
        async with db.transaction() as conn:
            hosts = await hosts_of(conn)
        roots = [(domain64, name, "/") for domain64, name in hosts]
        await knocking(door, cut(roots, LARGE_SIZE))  # to cache every host
        for line in sys.stdin:
            job = Job(**json.loads(line))
            batches = cut(job.pages(world, hosts), job.batch)
            contend = knocking if job.who == "usher" else partial(inserting, job.who)
            say("ready")
            sys.stdin.readline()
            async with Database(dsn) as fresh:
                say(await contend(Doorkeeper(fresh) if job.cold else door, batches))


def cut(pages: list[Page], batch: int) -> list[list[Page]]:
    return [pages[at : at + batch] for at in range(0, len(pages), batch)]


async def knocking(door: Doorkeeper, batches: list[list[Page]]) -> Outcome:
    given = [[f"https://{host}{path}" for _, host, path in batch] for batch in batches]
    counts = Counter[str]()
    begin = monotonic()
    async for answers in door.stream(given):
        counts.update(answers.counts())
    return begin, monotonic(), counts


async def inserting(who: str, door: Doorkeeper, batches: list[list[Page]]) -> Outcome:
    when = datetime.now(UTC) + timedelta(days=30)
    rows = [[(number, path) for number, _, path in batch] for batch in batches]
    columns = [[list(column) for column in zip(*batch, strict=True)] for batch in rows]
    inserted = 0
    begin = monotonic()
    for given in columns:
        async with door.db.transaction() as conn:
            values = map(in_text, given) if who == "packed_insert" else given
            inserted += (await conn.execute(BARE_INSERT, [when, *values])).rowcount
    end = monotonic()
    known = sum(map(len, batches)) - inserted
    return begin, end, {Reason.NEW_PAGE: inserted, Reason.PAGE_NOT_DUE: known}


def in_text(values: list[object]) -> str:
    """Return an array in PostgreSQL's text format; these values need no quotes. The driver is slower with a list."""
    return "{" + ",".join(map(str, values)) + "}"


async def stream(dsn: str, path: str, first: int) -> None:
    """Knock for the URLs of a file; print the peak memory after the first ones and after all, and the speed."""
    count, early, begin = 0, 0.0, monotonic()
    async with Database(dsn) as db:
        with Path(path).open() as file:  # noqa: ASYNC230 - as the command line does
            batches = iter(lambda: list(islice(file, LARGE_SIZE)), [])
            async for answers in Doorkeeper(db).stream(batches):
                count += len(answers.answers)
                early = peak_mib() if count <= first else early
    say([early, max(early, peak_mib()), count / (monotonic() - begin)])


def peak_mib() -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux, where this would include memory of the parent
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


class Child:
    """Another process of this file; the words are the name of its function and its arguments."""

    def __init__(self, *words: str) -> None:
        command, pipe = [sys.executable, __file__, *words], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def send(self, words: object) -> None:
        if self.process.stdin:
            print(json.dumps(words), file=self.process.stdin, flush=True)

    def receive(self) -> Any:  # noqa: ANN401 - any JSON
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError("a process of the bench ended early, see above")
        return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Place:
    """A filled database, two processes that knock, and for each contender the next unused number."""

    def __init__(self, dsn: str, world: World, hosts: list[Host], ends: AsyncExitStack) -> None:
        self.dsn, self.world, self.hosts = dsn, world, hosts
        self.workers = [Child("work", dsn, json.dumps(asdict(world))) for _ in range(2)]
        for worker in self.workers:
            ends.callback(worker.end)
        self.next = dict.fromkeys(("usher", "limit", "packed_insert"), world.rows)
        # Numbers that the limit, which fills the same table, does not use.
        self.next["packed_insert"] += PRIME // 2
        for who in self.next:
            self.judge(who, SMALL_SIZE * WARM_BATCHES, SMALL_SIZE, parts=2)
            self.judge(who, LARGE_SIZE, LARGE_SIZE, parts=2)

    def judge(
        self, who: str, urls: int, batch: int, *, known: float = 0, parts: int = 1, **how: bool
    ) -> float:
        """Return the seconds from the first start to the last end of the processes."""
        workers = self.workers[:parts]
        for part, worker in enumerate(workers):
            worker.send(asdict(Job(who, urls, batch, known, self.next[who], part, parts, **how)))
            self.next[who] += urls
        for worker in workers:
            worker.receive()
        for worker in workers:
            worker.send("go")
        begins, ends, counts = zip(*(worker.receive() for worker in workers), strict=True)
        there = round(urls * known)
        wanted = Counter({Reason.NEW_PAGE: urls - there, Reason.PAGE_NOT_DUE: there})
        if any(Counter(found) != wanted for found in counts):
            raise RuntimeError(f"{who} answered {counts}, not {wanted}")
        return float(max(ends) - min(begins))

    def rate(self, who: str, urls: int, batch: int, known: float, parts: int) -> float:
        return urls * parts / self.judge(who, urls, batch, known=known, parts=parts)


def contest(
    bench: Bench, places: Sequence[Place], case: str, batch: int, *, more: bool
) -> list[Measure]:
    """Measure one case at all sizes, in turns; with `more` also two processes and packed arrays at the first size."""
    what = f"{case}, batches of {batch:,}"
    kinds = {str(place.world): (place, 1) for place in places}
    if more:
        kinds[f"{places[0].world}, two processes"] = (places[0], 2)
    base, *others = kinds
    bench.say(f"{what}, {base}")
    urls = 30 * SMALL_SIZE if batch == SMALL_SIZE else (3 - bench.quick) * LARGE_SIZE
    turns = {
        (who, kind): partial(place.rate, who, urls, batch, CASES[case], parts)
        for kind, (place, parts) in kinds.items()
        for who in ("usher", "limit", *(["packed_insert"] if more and kind == base else []))
    }
    figures = frame.interleaved({" ".join(key): turn for key, turn in turns.items()}, bench.repeats)

    def of(kind: str) -> dict[str, list[float]]:
        return {who: figures[f"{who} {kind}"] for who, there in turns if there == kind}

    measures = [(f"{what}, {kind}", "URLs/s", of(kind)) for kind in kinds]
    for kind in others:
        ratios = {who: list(map(truediv, of(kind)[who], of(base)[who])) for who in of(kind)}
        measures.append((f"{what}, {kind}, by {base}", "times", ratios))
    return [frame.measured(*each, better="higher") for each in measures]


def first_batches(bench: Bench, place: Place) -> list[Measure]:
    """Measure the first batch of a new process."""
    few = SMALL_SIZE if bench.quick else LARGE_SIZE
    unseen = partial(place.judge, "usher", few, few, cold=True, unseen_hosts=True)
    turns = {f"{few:,}, each of a host never seen": {"usher": unseen}} | {
        f"{batch:,}, all new": {
            who: partial(place.judge, who, batch, batch, cold=True) for who in place.next
        }
        for batch in SIZES
    }
    measures = []
    for what, contenders in turns.items():
        figures = frame.interleaved(contenders, bench.repeats)
        in_ms = {who: [1000 * each for each in taken] for who, taken in figures.items()}
        measures.append(frame.measured(f"first batch of {what}, {place.world}", "ms", in_ms))
    return measures


def memory(bench: Bench, place: Place, urls: int) -> list[Measure]:
    """Measure the memory while a file is streamed; 45 % of its pages are known."""
    what = f"a file of {short(urls)} URLs, 45 % known, {place.world}"
    bench.say(what)
    start, rows = place.next["usher"], place.world.rows
    numbers = (n * 7 % rows if n % 20 < 9 else start + n for n in range(urls))  # noqa: PLR2004
    pages = (page(number, place.world, place.hosts) for number in numbers)
    with frame.scratch() as home, (home / "urls").open("w") as file:
        file.writelines(f"https://{name}{path}\n" for _, name, path in pages)
        file.flush()
        child = Child("stream", place.dsn, file.name, str(urls // 10))
        try:
            early, late, speed = child.receive()
        finally:
            child.end()
    return [
        Measure(f"peak memory after a tenth of {what}", "MiB", early),
        Measure(f"peak memory after all of {what}", "MiB", late),
        Measure(f"stream of {what}", "URLs/s", speed, better="higher"),
    ]


async def measure(bench: Bench) -> list[Measure]:
    sizes = [200_000] if bench.quick else [1_000_000, 10_000_000]
    shapes = SHAPES[:1] if bench.quick else SHAPES
    measures = []
    for shape in shapes:
        async with AsyncExitStack() as ends:
            places = []
            for rows in sizes:
                dsn = await ends.enter_async_context(frame.database())
                world = World(rows, *shape)
                bench.say(f"filling in {world}")
                places.append(Place(dsn, world, await filled(dsn, world), ends))
            for case in product(CASES, SIZES):
                more = shape == SHAPES[0] and (not bench.quick or case == REAL)
                measures += contest(bench, places, *case, more=more)
            measures += first_batches(bench, places[0])
            if shape == shapes[-1]:
                measures += memory(bench, places[0], 300_000 if bench.quick else 10_000_000)
    return measures


def run(bench: Bench) -> list[Measure]:
    """Count the URLs that the door decides in a second, and a plain insert of the same rows."""
    for note in NOTES:
        bench.note(note)
    return asyncio.run(measure(bench))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", dsn, world]:
            asyncio.run(work(dsn, World(**json.loads(world))))
        case ["stream", dsn, path, first]:
            asyncio.run(stream(dsn, path, int(first)))
        case _:
            frame.main("door", run)
