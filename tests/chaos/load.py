"""Load during the faults: new pages, recrawls and jobs, and a record of what MGMT acknowledged."""

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from chaos.cluster import Cluster
from chaos.pages import FIRST_PAGES, HOSTS, Page, first_pages, later_pages
from chaos.searches import Searchable

ROUND_SECONDS = 2.0
PAGES_PER_ROUND = 2
JOBS_PER_ROUND = 2
RECRAWL_SECONDS = 25.0
MAX_LATER_PAGES = 800
# Pages whose newest text is in a chunk that every row has loaded.
SEARCHABLE = """
select h.name, g.path
from work.guestbook g
join work.hosts h using (domain64)
join work.chunk c on c.id = g.indexed_in
where c.propagated_at is not null
"""


@dataclass(slots=True)
class Record:
    """What the load asked for; `admitted` counts how often each page may have been queued."""

    pages: set[Page] = field(default_factory=set)
    admitted: Counter[str] = field(default_factory=Counter)
    jobs: set[int] = field(default_factory=set)


class Load(threading.Thread):
    """Knocks for new pages, recrawls hosts and adds jobs, until it is stopped."""

    def __init__(self, cluster: Cluster, searchable: Searchable, seed: int) -> None:
        super().__init__(name="load", daemon=True)
        self.cluster, self.searchable, self.record = cluster, searchable, Record()
        self.dice = random.Random(seed)  # noqa: S311 - which host is no secret
        self.stopping = threading.Event()
        self.later = later_pages()
        self.lock = threading.Lock()  # the recovery of a fault adds pages too
        self.recrawled_at = time.monotonic()
        for page in first_pages():
            self.record.pages.add(page)
            self.record.admitted[page.url] += 1

    def run(self) -> None:
        while not self.stopping.wait(ROUND_SECONDS):
            if len(self.record.pages) < len(HOSTS) * FIRST_PAGES + MAX_LATER_PAGES:
                self.add_pages(PAGES_PER_ROUND)
            self.add_jobs(JOBS_PER_ROUND)
            if time.monotonic() - self.recrawled_at > RECRAWL_SECONDS:
                self.recrawled_at = time.monotonic()
                self.recrawl(self.dice.choice(HOSTS))
            self.note_searchable()

    def add_pages(self, number: int) -> list[Page]:
        """Knock for new pages; return those that MGMT acknowledged."""
        with self.lock:
            pages = [next(self.later) for _ in range(number)]
        for page in pages:
            self.record.admitted[page.url] += 1
        with suppress(OSError, ValueError):
            body = {"urls": [page.url for page in pages], "pass": True}
            answer = self.cluster.api("POST", "/v1/knock", body)
            verdicts = {verdict["url"]: verdict["verdict"] for verdict in answer["answers"]}
            known = [page for page in pages if verdicts.get(page.url, "refuse") != "refuse"]
            self.record.pages.update(known)
            return known
        return []

    def recrawl(self, host: str) -> None:
        """Ask for a whole host once more; each of its pages may then be fetched once more."""
        for url in list(self.record.admitted):
            if url.startswith(f"http://{host}/"):
                self.record.admitted[url] += 1
        with suppress(OSError, ValueError):
            body = {"urls": [f"http://{host}/"], "kind": "full", "pass": True, "answers": False}
            self.cluster.api("POST", "/v1/knock", body)

    def add_jobs(self, number: int) -> list[int]:
        """Add jobs that append their number and the time to a file; return those acknowledged."""
        script = f'date "+$USHER_JOB_ID %s.%N" >>{self.cluster.job_log}'
        job = {"type": "chaos", "program": "/bin/sh", "args": ["-c", script]}
        with suppress(OSError, ValueError):
            answer = self.cluster.api("POST", "/v1/jobs", {"jobs": [job] * number})
            ids = [entered["id"] for entered in answer["jobs"]]
            self.record.jobs.update(ids)
            return ids
        return []

    def note_searchable(self) -> None:
        """Note the pages that every row has; the database must answer for that."""
        with (
            suppress(psycopg.Error),
            psycopg.connect(
                self.cluster.database_url(), connect_timeout=2, target_session_attrs="read-write"
            ) as conn,
        ):
            for host, path in conn.execute(SEARCHABLE).fetchall():
                number = path.removeprefix("/page/")
                if number.isdigit():
                    self.searchable.add(Page(host, int(number)))
