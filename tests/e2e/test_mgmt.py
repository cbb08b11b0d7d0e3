"""MGMT under load while crawlers, builders, servers, MGMT itself, the watchdog and PostgreSQL are killed or frozen."""

import random
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle, pairwise
from pathlib import Path

import psycopg
import pytest

from support.processes.crawls import FORGIVEN
from support.processes.free_port import free_port
from support.processes.killable import eventually, kill_9, running
from support.processes.stack import TESTS, USHER, ProcessStack, ask, open_stack
from usher.db.embedded.server_lease import EmbeddedServerLease

HOSTS, PAGES, SECONDS, DELAY = 12, 100, 20, 0.05
CONFIG = "chunk_lease = 3\nchunk_wait = 0.2\n"
DOG = ("watchdog", "--every", "0.4", "--misses", "2", "--probation", "1", "--grace", "2")
# Who may die: a component is killed or frozen, MGMT, the watchdog and the database are killed.
FLEET = ("crawler1", "crawler2", "crawler3", "builder1", "builder2", "s11", "s12", "s21", "s22")
# What is lost three times is given up, and rightly: it may be what kills. Here it is the test, so nothing is blamed.
BUILDS_FORGIVEN = """
update work.chunk set build_attempts = 0
where id in (
    select id from work.chunk
    where build_attempts > 0 and index_state is distinct from 'built' for update skip locked
)
"""


def fill(dsn: str) -> None:
    """Twelve hundred pages of a dozen hosts, two rows, and a short rest between two requests to a host."""
    urls = [f"https://h{host}.com/{page}" for host in range(HOSTS) for page in range(PAGES)]
    done = usher_add(urls, dsn)
    assert done == 0
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "update work.settings set rows = 2, crawl_delay = make_interval(secs => %s)", [DELAY]
        )


def usher_add(urls: list[str], dsn: str) -> int:
    from support.processes.commands import usher

    text = "\n".join(urls).encode()
    return usher("add", "-", given=text, environment={"DATABASE_URL": dsn}).code


def bring_on(stack: ProcessStack, book: Path) -> None:
    ports = {name: free_port() for name in ("mgmt1", "mgmt2", *FLEET)}
    for name in ("mgmt1", "mgmt2"):
        stack.start(name, *USHER, "mgmt", "--bind", f"127.0.0.1:{ports[name]}")
    addresses = ",".join(f"http://127.0.0.1:{ports[name]}" for name in ("mgmt1", "mgmt2"))
    for name in FLEET:
        role = "server" if name.startswith("s") else name.rstrip("0123456789")
        row = (name[1],) if role == "server" else ()
        script = str(TESTS / "support" / "mgmt" / "component_processes.py")
        stack.start(
            name, sys.executable, script, role, addresses, str(ports[name]), str(book), *row
        )
    for name in ("dog1", "dog2"):
        stack.start(name, *USHER, *DOG)


def trouble(stack: ProcessStack, lease: EmbeddedServerLease, luck: random.Random) -> Counter[str]:
    """Twenty seconds in which anything may die or stand still."""
    deaths: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    turns = [*FLEET, "mgmt1", "mgmt2", "dog1", "dog2", "postgres", "postgres"]
    luck.shuffle(turns)
    for who in cycle(turns):
        forgive(lease.dsn)
        if time.monotonic() > until:
            break
        if who == "postgres":
            if (pid := lease.cluster.pid()) and running(pid):
                kill_9(pid)
        elif who in FLEET and luck.random() < 0.4:
            stack.freeze(who, luck.uniform(0.5, 4))
            deaths["frozen"] += 1
        else:
            stack.kill(who)
        deaths[who.rstrip("0123456789")] += 1
        time.sleep(luck.uniform(0.2, 0.8))
    return deaths


def forgive(dsn: str) -> None:
    with suppress(psycopg.OperationalError), psycopg.connect(dsn) as conn:
        for text in (FORGIVEN, BUILDS_FORGIVEN):
            conn.execute(text.encode())


DONE = """
select
    (select count(*) from work.guestbook where state not in ('crawled', 'error')),
    (select count(*) from work.chunk where state = 'crawled' and propagated_at is null)
"""


@pytest.mark.soak
def test_everything_ends_well_whoever_dies(capsys: pytest.CaptureFixture[str]) -> None:
    luck = random.Random(5)  # noqa: S311 - repeatable
    with open_stack(CONFIG) as (stack, lease, directory):
        book = directory / "book"
        book.touch()
        fill(lease.dsn)
        bring_on(stack, book)
        assert eventually(
            lambda: bool(book.read_text()), 90
        )  # else no component has anything to lose yet
        deaths = trouble(stack, lease, luck)
        ended = eventually(lambda: over(lease.dsn), 240)
        fetches = [line.split() for line in book.read_text().splitlines()]
        with capsys.disabled():
            print(f"\n{summary(lease.dsn, deaths, fetches)}")  # noqa: T201 - the issue asks for it
        assert ended, (ask(lease.dsn, DONE), (directory / "log").read_text()[-3000:])
        check(lease.dsn)
        assert hurried(fetches) == []


def over(dsn: str) -> bool:
    """A lease may end by itself, where every step takes long."""
    forgive(dsn)
    return ask(dsn, DONE) == [(0, 0)]


def summary(dsn: str, deaths: Counter[str], fetches: list[list[str]]) -> str:
    pages = ask(dsn, "select state, count(*) from work.guestbook group by 1 order by 1")
    chunks = ask(dsn, "select state, count(*) from work.chunk group by 1 order by 1")
    return f"hit: {dict(deaths)}; pages: {pages}; chunks: {chunks}; fetches: {len(fetches)}"


def check(dsn: str) -> None:
    total = HOSTS * PAGES
    assert ask(dsn, "select count(*) from work.guestbook where state = 'crawled'") == [(total,)]
    copies = """
        select k.id from work.chunk k
        left join work.placement p on p.chunk_id = k.id and p.state = 'loaded'
        where k.state = 'crawled'
        group by k.id having count(distinct p.row) <> 2 or count(*) <> 2
    """
    assert ask(dsn, copies) == []
    # A page's last chunk is one that was crawled; no chunk was built that was not.
    orphans = """
        select g.id from work.guestbook g join work.chunk k on k.id = g.chunk_id where k.state <> 'crawled'
    """
    assert ask(dsn, orphans) == []
    uneven = """
        select "row" from (
            select c."row", c.id, count(p.chunk_id) filter (where p.state <> 'leaving') as n
            from work.component c left join work.placement p on p.component_id = c.id
            where c.type = 'index-server' group by 1, 2
        ) s group by 1 having max(n) - min(n) > 1
    """
    assert eventually(lambda: ask(dsn, uneven) == [], 30)


def hurried(fetches: list[list[str]]) -> list[tuple[str, float]]:
    """Hosts that were asked twice without their rest, as they saw it."""
    times: dict[str, list[float]] = {}
    for _, host, at, *_ in fetches:
        times.setdefault(host, []).append(float(at))
    found = []
    for host, seen in times.items():
        seen.sort()
        gaps = [later - earlier for earlier, later in pairwise(seen)]
        found += [(host, gap) for gap in gaps if gap < DELAY * 0.9]
    return found
