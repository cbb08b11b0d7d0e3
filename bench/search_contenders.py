"""The contenders of bench/search.py: Tantivy used directly, and Usher as processes that are filled by MGMT's API."""

import asyncio
import html
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote

import psycopg

from crawl_contenders import Meter, Nginx, Ran, dsn_of, postmaster, said
from frame import wait_until
from usher.chunk_store import ChunkStore
from usher.crawl.page import parse as page
from usher.db.embedded.server_lease import lease_server
from usher.http.client.mgmt_client import Client
from usher.http.client.pool import HttpPool
from usher.index import chunk_file
from usher.index.document import IndexDocument, from_page
from usher.messages.crawler import PageReport
from usher.urls import Url, parse

TREES = {
    "postgresql": "/usr/share/doc/postgresql-doc-15/html",
    "python": "/usr/share/doc/python3.11-doc/html",
    "git": "/usr/share/doc/git-doc",
    "linux": "/usr/share/doc/linux-doc-6.1/html",
}
MAX_PAGE_BYTES = 400_000  # excludes single-page editions of whole books
CHUNK_DOCUMENTS = 50
NOW = datetime(2026, 11, 16, tzinfo=UTC)
PATIENCE = 120.0
CRAWL_SECONDS = 900
PAGE_CHARACTERS = 3_000  # of the site that is crawled
OK = 200
USHER = (sys.executable, "-m", "usher")
LOADED = "select count(*) from work.placement where row = %s and state = 'loaded'"


# -- documents


def documents(number: int, kept: Path) -> tuple[list[IndexDocument], str]:
    """Return this number of documents and their source; documents of real pages are cached."""
    files = list(listed())
    if not files:
        return generated(number), "generated, with words as common as words are"
    real = read(files[:number], kept / f"documents-{min(number, len(files))}.idx")
    made = [copied(real[at % len(real)], at // len(real)) for at in range(number)]
    return made, f"{len(real)} real pages of {', '.join(TREES)}, in turn until there are enough"


def listed() -> Iterator[tuple[str, Path, str]]:
    """Yield pages of every installed tree, alternating between the trees: host, file and path."""
    trees = []
    for host, tree in TREES.items():
        found = sorted(Path(tree).rglob("*.html"))
        small = [one for one in found if one.is_file() and one.stat().st_size < MAX_PAGE_BYTES]
        trees.append([(host, one, one.relative_to(tree).as_posix()) for one in small])
    for some in zip_longest(*trees):
        yield from filter(None, some)


def read(files: Sequence[tuple[str, Path, str]], kept: Path) -> list[IndexDocument]:
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with ProcessPoolExecutor(2) as pool:
            found = [one for one in pool.map(document, files, chunksize=50) if one]
        chunk_file.write(kept, 1, found)
    return list(chunk_file.read(kept)[1])


def document(file: tuple[str, Path, str]) -> IndexDocument | None:
    host, path, name = file
    url = parse(f"http://{host}.example/{quote(name)}")
    assert isinstance(url, Url)  # noqa: S101 - as it was made
    found = page.extract_documents(
        path.read_bytes(), url, media_type="text/html", charset="", robots_tags=[]
    )
    made = from_page(found[0], key=str(url), host=url.host, chunk=1, crawled=NOW)
    return made if isinstance(made, IndexDocument) else None


def copied(one: IndexDocument, number: int) -> IndexDocument:
    """Return the document under another name, and changed so that it is no copy."""
    name = f"{number}.{one.host}"
    parts = {field: getattr(one, field) for field in one.__struct_fields__}
    url = one.url.replace(one.host, name, 1)
    changed = {"url": url, "key": url.removeprefix("http://"), "host": name}
    return IndexDocument(**(parts | changed | {"simhash": 0, "text64": 0, "canonical": ""}))


def generated(number: int) -> list[IndexDocument]:
    chance = random.Random(5)  # noqa: S311 - the same every time
    words = [
        "".join(chance.choices("aeioubdfglmnprst", k=chance.randint(3, 9))) for _ in range(40_000)
    ]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    sums = [sum(weights[:1])]
    for one in weights[1:]:
        sums.append(sums[-1] + one)

    def text(length: int) -> str:
        return " ".join(chance.choices(words, cum_weights=sums, k=length))

    made = []
    for at in range(number):
        host = f"h{at // CHUNK_DOCUMENTS}.example"
        body, title = text(chance.randint(200, 2_000)), text(5)
        key = f"{host}/{at}"
        made.append(
            IndexDocument(
                key=key,
                url=f"http://{key}",
                host=host,
                chunk=1,
                crawled=NOW,
                title=title,
                body=body,
            )
        )
    return made


def queries(found: Sequence[IndexDocument], number: int) -> list[str]:
    """Return different queries of one to three adjacent words of titles and headings, in lower case."""
    chance = random.Random(6)  # noqa: S311
    made: dict[str, None] = {}
    while len(made) < number:
        one = chance.choice(found)
        words = chance.choice([one.title, *one.headings]).split()
        start, length = chance.randrange(len(words) + 1), chance.randint(1, 3)
        plain = [word for word in words[start : start + length] if word.isalnum()]
        if plain:
            made[" ".join(plain).lower()] = None
    return list(made)


# -- ours


class SearchCluster:
    """MGMT, a watchdog, index servers and a front-end as processes; this class acts as crawler and builder."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o711)
        self.home = home
        self.env = os.environ | {
            "USHER_DATA": str(home),
            "USHER_LOG_LEVEL": "warning",
            "USHER_CHUNK_WAIT": "0",
            "USHER_CHUNK_PAGES": str(CHUNK_DOCUMENTS),
        }
        self.env.pop("DATABASE_URL", None)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.rows, self.chunks = 0, 0

    @contextmanager
    def open(self) -> Iterator["SearchCluster"]:
        with lease_server(self.home):
            self.env["USHER_MGMT_URL"] = self.start("mgmt", "mgmt", "--bind", "127.0.0.1:0")
            self.start("watchdog", "watchdog", "--every", "0.5", "--probation", "0")
            self.run("update work.settings set crawl_delay = '0'")
            try:
                yield self
            finally:
                self.end(*reversed(self.processes))

    def start(self, name: str, *words: str) -> str:
        """Start a process of Usher, wait until it is ready, and return its address."""
        command = [*USHER, *words]
        self.processes[name] = subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, text=True
        )
        return said(self.processes[name]).split()[-1]

    def end(self, *names: str) -> None:
        for name in names:
            process = self.processes.pop(name)
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def run(self, statement: str, *given: object) -> None:
        with psycopg.connect(dsn_of(self.env), autocommit=True) as conn:
            conn.execute(statement.encode(), given)

    async def fill(self, found: Sequence[IndexDocument], store: ChunkStore, here: str) -> None:
        """Report all documents as crawled and built, chunk by chunk."""
        mgmt = self.env["USHER_MGMT_URL"]
        known = {one.url: one for one in found}
        async with (
            Client(mgmt, host=here.replace("127.0.0.1", "localhost")) as crawler,
            Client(mgmt, host=here) as builder,
        ):
            await crawler.set_state("online", type="crawler")
            await builder.set_state("online", type="index-builder")
            for start in range(0, len(found), 5_000):
                await crawler.add_links([one.url for one in found[start : start + 5_000]])
            while pack := await crawler.get_links(
                CHUNK_DOCUMENTS, hosts=CHUNK_DOCUMENTS, each=CHUNK_DOCUMENTS
            ):
                pages = [
                    PageReport(link=one.link, result="success", status=200) for one in pack.pages
                ]
                await crawler.crawled(pack.chunk_id, pages=pages)
                some = [known[one.link] for one in pack.pages if one.link in known]
                path = store.path(pack.chunk_id)
                path.parent.mkdir(parents=True, exist_ok=True)
                chunk_file.write(path, pack.chunk_id, some)
            while claimed := await builder.get_content_chunks(50):
                for one in claimed:
                    file = store.find(one.chunk_id)
                    assert file  # noqa: S101
                    await builder.built(one.chunk_id, sha256=file.sha256, size=file.size)
                    self.chunks += 1

    def row(self, servers: int, patience: float = PATIENCE) -> float:
        """Add a row of this number of servers; return the chunks a second that they load, from first to last commit."""
        self.rows += 1
        self.run("update work.settings set rows = %s", self.rows)
        for number in range(servers):
            name = f"server-{self.rows}-{number}"
            self.start(name, "index-server", "--row", str(self.rows), "--bind", "127.0.0.1:0")
        return self.watch(patience)

    def watch(self, patience: float) -> float:
        first = last = (0.0, 0)
        with psycopg.connect(dsn_of(self.env), autocommit=True) as conn:
            deadline = time.perf_counter() + patience
            while last[1] < self.chunks and time.perf_counter() < deadline:
                time.sleep(0.01)
                [(number,)] = conn.execute(LOADED.encode(), [self.rows]).fetchall()
                if number > last[1]:
                    last = (time.perf_counter(), int(number))
                    first = first if first[1] else last
        if last[1] < self.chunks:
            raise RuntimeError(f"{last[1]} of {self.chunks} chunks were loaded")
        return (last[1] - first[1]) / (last[0] - first[0]) if last > first else 0.0

    def leave(self, row: int) -> None:
        """Stop the servers of a row."""
        self.end(*[name for name in self.processes if name.startswith(f"server-{row}-")])


class SearchClient:
    """A client that searches at a front-end over persistent connections."""

    def __init__(self, address: str) -> None:
        self._host = address.split("/")[2]
        name, _, port = self._host.partition(":")
        self._lines = HttpPool(name, int(port), timeout=30, name="Front-end", hint="")

    async def ask(self, text: str) -> float:
        """Return the seconds until the answer."""
        began = time.perf_counter()
        answer = await self._lines.ask(
            "GET", f"/search.json?q={quote(text)}", b"", {"Host": self._host}
        )
        if answer.status != OK or b'"partial":true' in answer.body:
            raise RuntimeError(f"{text!r} was answered with {answer.status}: {answer.body[:200]!r}")
        return time.perf_counter() - began

    async def one_by_one(self, texts: Sequence[str]) -> list[float]:
        return [await self.ask(text) for text in texts]

    async def together(self, texts: Sequence[str], clients: int) -> float:
        """Return the queries a second of this number of concurrent clients."""
        waiting, began = iter(texts), time.perf_counter()

        async def client() -> None:
            for text in waiting:
                await self.ask(text)

        await asyncio.gather(*(client() for _ in range(clients)))
        return len(texts) / (time.perf_counter() - began)

    def close(self) -> None:
        self._lines.close()


# -- a whole crawl


class Crawl:
    """`usher crawl` of a site with this number of small pages, each with a part of a document."""

    def __init__(self, home: Path, found: Sequence[IndexDocument]) -> None:
        self.home, self.tree = home / "crawl", home / "tree"
        self.tree.mkdir()
        for number, one in enumerate(found):
            links = "".join(
                f"<a href={below}.html>{below}</a> "
                for below in range(10 * number + 1, min(10 * number + 11, len(found)))
            )
            words = html.escape(one.body[:PAGE_CHARACTERS])
            text = f"<html lang=en><title>{html.escape(one.title)} {number}</title><p>{words}</p>{links}"
            (self.tree / f"{number}.html").write_text(text)

    def run(self) -> tuple[str, Ran]:
        """Return its last message, and its resources."""
        with Nginx(self.tree, self.tree.parent) as site:
            url = site.url.replace("index.html", "0.html")
            words = ["--data", str(self.home), "crawl", "--delay", "0", url]
            began = time.perf_counter()
            process = subprocess.Popen([*USHER, *words], stdout=subprocess.PIPE, text=True)
            wait_until((self.home / "logs" / "crawler.log").exists, 60)
            meter = Meter({"usher": process.pid, "postgres": postmaster(self.home)})
            out, _ = process.communicate(timeout=CRAWL_SECONDS)
            used = meter.end()
        if process.returncode:
            raise RuntimeError(f"the crawl ended with {process.returncode}: {out}")
        pages = int(out.split()[1].replace(",", ""))
        taken = time.perf_counter() - began
        return out.strip(), Ran(pages, taken, sum(used.values()), meter.peak, used)
