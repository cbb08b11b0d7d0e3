"""The contenders of bench/crawl.py: Usher as processes, Scrapy in its venv, a client that only fetches; and nginx."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, Self

import psycopg

from usher.db.embedded.server_lease import lease_server

PEERS = Path(__file__).with_name("crawl_peers.py")
TICK = os.sysconf("SC_CLK_TCK")
MAX_CRAWL_SECONDS = 300
CONF = """
worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.err;
events {{ worker_connections 2048; }}
http {{
  include /etc/nginx/mime.types; access_log off; gzip on; sendfile on; keepalive_requests 1000000;
  client_body_temp_path {home}/n1; proxy_temp_path {home}/n2; fastcgi_temp_path {home}/n3;
  uwsgi_temp_path {home}/n4; scgi_temp_path {home}/n5;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """One crawl: pages, seconds, CPU and memory of its processes."""

    pages: int
    seconds: float
    cpu: float
    megabytes: float
    by_process: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.pages / self.seconds

    @property
    def by_cpu(self) -> float:
        return self.pages / self.cpu

    @property
    def cpu_for_1000(self) -> float:
        return 1000 * self.cpu / self.pages


class Nginx:
    """The site."""

    def __init__(self, root: Path, home: Path) -> None:
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            self.port = trial.getsockname()[1]
        self.conf = home / "nginx.conf"
        self.conf.write_text(CONF.format(home=home, port=self.port, root=root))
        self.url = f"http://127.0.0.1:{self.port}/index.html"

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(["nginx", "-c", str(self.conf)], stderr=subprocess.DEVNULL)
        for _ in range(100):
            time.sleep(0.05)
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
        raise RuntimeError("nginx does not start")

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)


class Side(Protocol):
    """A contender that crawls the site once."""

    def crawl(self, site: Nginx) -> Ran: ...


class Meter:
    """CPU and memory of processes and their descendants, sampled often."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self.roots = dict(roots)
        self.cpu: dict[str, dict[int, float]] = {name: {} for name in roots}
        self.peak = 0.0
        self._stop = threading.Event()
        self._before = {name: sum(self._look(name).values()) for name in roots}
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._sample()

    def _sample(self) -> None:
        self.peak = max(
            self.peak, sum(memory(pid) for one in self.roots.values() for pid in process_tree(one))
        )
        for name in self.roots:
            self._look(name)

    def _look(self, name: str) -> dict[int, float]:
        """Sum the maximum of each process; a process that has ended counts with its last sample."""
        for pid in process_tree(self.roots[name]):
            self.cpu[name][pid] = max(self.cpu[name].get(pid, 0.0), cpu(pid))
        return self.cpu[name]

    def end(self) -> dict[str, float]:
        self._stop.set()
        self._thread.join()
        self._sample()
        return {name: sum(self.cpu[name].values()) - self._before[name] for name in self.roots}


def process_tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def cpu(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / TICK


def memory(pid: int) -> float:
    """Return the proportional set size in MB; PostgreSQL's processes share most of their memory."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass
    return 0.0


class Usher:
    """`usher mgmt` and `usher crawler` with a new embedded PostgreSQL for each crawl."""

    def __init__(self, home: Path) -> None:
        self.home, self.turn = home, 0

    def crawl(self, site: Nginx) -> Ran:
        self.turn += 1
        data = self.home / f"usher{self.turn}"
        data.mkdir(mode=0o711)
        env = os.environ | {
            "USHER_DATA": str(data),
            "USHER_ALLOW_PRIVATE": "127.0.0.1",
            "USHER_LOG_LEVEL": "warning",
        }
        env.pop("DATABASE_URL", None)
        mgmt = self._start(env, "mgmt", "--bind", "127.0.0.1:0")
        address = said(mgmt)
        env["USHER_MGMT_URL"] = address
        dsn = self._ready(env, site)
        crawler = self._start(env, "crawler", "--bind", "127.0.0.1:0")
        said(crawler)
        meter = Meter({"mgmt": mgmt.pid, "crawler": crawler.pid, "postgres": postmaster(data)})
        began = time.perf_counter()
        self._run(env, "add", site.url)
        pages, ended = self._wait(dsn)
        used = meter.end()
        for process in (crawler, mgmt):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        return Ran(pages, ended - began, sum(used.values()), meter.peak, used)

    def _start(self, env: Mapping[str, str], *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "usher", *words]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    def _run(self, env: Mapping[str, str], *words: str) -> str:
        command = [sys.executable, "-m", "usher", *words]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def _ready(self, env: Mapping[str, str], site: Nginx) -> str:
        """Register the host without a crawl delay; return the address of the database."""
        host = site.url.split("/")[2]
        self._run(env, "hosts", "add", host)
        self._run(env, "hosts", "set", host, "--crawl-delay", "0")
        return dsn_of(env)

    def _wait(self, dsn: str) -> tuple[int, float]:
        """Wait until no page is pending and every chunk is reported, twice in a row."""
        with psycopg.connect(dsn, autocommit=True) as conn:
            deadline = time.perf_counter() + MAX_CRAWL_SECONDS
            while time.perf_counter() < deadline:
                [(left, done)] = conn.execute(
                    "select count(*) filter (where state in ('pending', 'crawling')), "
                    "count(*) filter (where status = 200) from work.guestbook"
                ).fetchall()
                if done and not left:
                    return int(done), time.perf_counter()
                time.sleep(0.05)
        raise RuntimeError("our crawl does not end")


def dsn_of(env: Mapping[str, str]) -> str:
    with lease_server(Path(env["USHER_DATA"])) as lease:
        return lease.dsn


def postmaster(data: Path) -> int:
    return int((data / "postgres" / "postmaster.pid").read_text().split()[0])


def said(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise RuntimeError("a process of ours did not start, see above")
    return line.strip()


class Peer:
    """A process that crawls once and prints the number of pages and seconds."""

    def __init__(self, home: Path, python: Path | str = sys.executable) -> None:
        self.home, self.python, self.turn = home, str(python), 0

    def words(self, site: Nginx) -> list[str]:
        raise NotImplementedError

    def crawl(self, site: Nginx) -> Ran:
        self.turn += 1
        command = [self.python, str(PEERS), *self.words(site)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.home)
        meter = Meter({"peer": process.pid})
        out, _ = process.communicate(timeout=MAX_CRAWL_SECONDS)
        used = meter.end()
        if process.returncode:
            raise RuntimeError(f"{command} failed")
        report = json.loads(out.splitlines()[-1])
        return Ran(
            report["pages"], report["seconds"], report.get("cpu") or used["peer"], meter.peak
        )


class Scrapy(Peer):
    needs: ClassVar = ["scrapy==2.19.0"]

    def words(self, site: Nginx) -> list[str]:
        return ["scrapy", site.url, str(self.home / f"items{self.turn}.jl")]


class Bare(Peer):
    """The client alone on the pages of the site, which a first run finds."""

    def words(self, site: Nginx) -> list[str]:
        return ["bare", site.url]
