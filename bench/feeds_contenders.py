"""The contenders of bench/feeds.py: polls as jobs, polls alone, reader in its venv; and the site that they poll."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final, Self
from xml.sax.saxutils import escape

import psycopg

import frame
from frame import Child

SCRIPT: Final = Path(__file__).with_name("feeds_peers.py")
PATIENCE: Final = 60
START: Final = datetime(2026, 11, 1, tzinfo=UTC)
SYLLABLES: Final = re.findall("..", "bacodifeguhajokilemunaporisetuvawoxize")
# One address for each feed, as on the web; the second server never answers 304.
CONF: Final = """
worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.err; {user}
events {{ worker_connections 2048; }}
http {{
  types {{ application/rss+xml rss; application/atom+xml atom; }}
  access_log off; gzip on; gzip_types application/rss+xml application/atom+xml; sendfile on;
  client_body_temp_path {home}/n1; proxy_temp_path {home}/n2; fastcgi_temp_path {home}/n3;
  uwsgi_temp_path {home}/n4; scgi_temp_path {home}/n5;
  server {{ listen 0.0.0.0:{port} backlog=2048; root {home}; }}
  server {{ listen 0.0.0.0:{plain} backlog=2048; root {home};
    etag off; if_modified_since off; max_ranges 0; add_header Last-Modified ""; }}
}}
"""
SETTINGS: Final = """
allow_private = "127.0.0.0/8"
database_url = "{dsn}"
log_level = "warning"
[worker.fetch]
max_processes = {processes}
preload = ["usher.feeds.worker"]
"""
FORGET: Final = """
    truncate feeds.feed_metadata, feeds.feed, feeds.author, feeds.category, feeds.geo, feeds.rating cascade;
    truncate control.job, control.job_log cascade;
    delete from control.task where name like 'feed-%'
"""


class Site:
    """nginx with feeds: RSS and Atom alternately, with HTML texts, some with authors, categories and media."""

    def __init__(self, home: Path, feeds: int, items: int) -> None:
        self.home, self.size = home, feeds * items
        self.names: list[str] = []
        luck = random.Random(8)  # noqa: S311 - repeatable
        for number in range(feeds):
            kind = ("rss", "atom")[number % 2]
            text = (rss if kind == "rss" else atom)(number, items, luck)
            (home / f"{number}.{kind}").write_text(text)
            self.names.append(f"{number}.{kind}")
        self.port, self.plain = (free_port() for _ in range(2))
        user = "user root;" if os.geteuid() == 0 else ""
        conf = CONF.format(home=home, port=self.port, plain=self.plain, user=user)
        (home / "nginx.conf").write_text(conf)

    def urls(self, *, plain: bool) -> list[str]:
        port = self.plain if plain else self.port
        return [
            f"http://127.{1 + n // 62_500}.{n // 250 % 250}.{1 + n % 250}:{port}/{name}"
            for n, name in enumerate(self.names)
        ]

    def bodies(self) -> list[str]:
        return [(self.home / name).read_text() for name in self.names]

    def __enter__(self) -> Self:
        given = ["-p", self.home, "-e", self.home / "nginx.err", "-c", self.home / "nginx.conf"]
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen([program, *map(str, given)], stderr=subprocess.DEVNULL)
        frame.wait_until(lambda: taken(self.port) and taken(self.plain), 10, pause=0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def taken(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def words(luck: random.Random, n: int) -> str:
    """Return as many different words as a language has, short ones more often."""
    return " ".join("".join(luck.choices(SYLLABLES, k=luck.choice((1, 2, 2, 3)))) for _ in range(n))


def html(luck: random.Random, link: str) -> str:
    paragraphs = [f"<p>{words(luck, 60)}</p>" for _ in range(3)]
    return f'{paragraphs[0]}<p><a href="{link}">{words(luck, 3)}</a> <img src="/i.png"/></p>{"".join(paragraphs[1:])}'


def rss(number: int, items: int, luck: random.Random) -> str:
    made = []
    for one in range(items):
        link = f"https://news{number}.example/{one}"
        date = format_datetime(START + timedelta(hours=3 * one))
        media = f'<enclosure url="{link}.mp3" length="12345" type="audio/mpeg"/>' * (one % 4 == 0)
        made.append(
            f"<item><title>{words(luck, 6)}</title><link>{link}</link><guid>{link}</guid><pubDate>{date}</pubDate>"
            f"<dc:creator>{words(luck, 2)}</dc:creator><category>{words(luck, 1)}</category>"
            f"<category>{words(luck, 1)}</category><description>{words(luck, 30)}</description>"
            f"<content:encoded><![CDATA[{html(luck, link)}]]></content:encoded>{media}</item>"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>'
        f"<title>News {number}</title><link>https://news{number}.example/</link><description>All</description>"
        f"<language>en</language>{''.join(made)}</channel></rss>"
    )


def atom(number: int, items: int, luck: random.Random) -> str:
    made = []
    for one in range(items):
        link = f"https://blog{number}.example/{one}"
        date = (START + timedelta(hours=3 * one)).isoformat()
        made.append(
            f'<entry><title>{words(luck, 6)}</title><link href="{link}"/><id>{link}</id><published>{date}</published>'
            f"<updated>{date}</updated><author><name>{words(luck, 2)}</name></author>"
            f'<category term="{words(luck, 1)}"/><summary>{words(luck, 30)}</summary>'
            f'<content type="html">{escape(html(luck, link))}</content></entry>'
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom" xml:lang="en">'
        f'<title>Blog {number}</title><link href="https://blog{number}.example/"/><id>urn:blog:{number}</id>'
        f"<updated>{START.isoformat()}</updated>{''.join(made)}</feed>"
    )


class Alone:
    """A process that polls feeds, with or without concurrency: reader, or Usher without the queue."""

    def __init__(self, name: str, python: str, dsn: str, place: Path, ends: ExitStack) -> None:
        self.name, self.place, self.dsn = name, str(place), dsn
        self.at_once = 1
        self.child = Child(python, SCRIPT, name, dsn)
        ends.callback(self.child.end)

    def subscribe(self, urls: list[str]) -> None:
        if self.name == "usher":
            forget(self.dsn)
        self.child.ask("subscribe", urls, self.place if self.name == "reader" else "")

    def poll(self, items: int) -> float:
        """Return the seconds for all feeds."""
        seconds, found = self.child.ask("poll", self.at_once)
        if found != items:
            raise RuntimeError(f"{self.name} has {found} items, not {items}")
        return seconds


def forget(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(FORGET.encode())
        conn.execute("vacuum (analyze) control.task, control.resource, control.job")


class Whole:
    """Polls as jobs: a manager with its processes, as `usher manager` runs them."""

    def __init__(self, dsn: str, home: Path, alone: Alone, ends: ExitStack) -> None:
        self.dsn, self.alone = dsn, alone
        self.conn = psycopg.connect(dsn, autocommit=True)
        ends.callback(self.conn.close)
        (home / "usher.toml").write_text(SETTINGS.format(dsn=dsn, processes=2))
        self.environment = {**os.environ, "USHER_CONFIG": str(home / "usher.toml")}
        self.manager = subprocess.Popen(
            [sys.executable, "-m", "usher", "manager"], env=self.environment, cwd=home
        )
        ends.callback(self.end)

    def subscribe(self, urls: list[str], *, knocks: bool = False) -> None:
        self.alone.subscribe(urls)
        self.conn.execute("update feeds.feed_metadata set knocks = %s", [knocks])
        self.conn.execute("update control.resource set interval = '0'")

    def poll(self, items: int) -> float:
        """Return the seconds from before the jobs are added until the last of them is in the log."""
        before = self.ended()
        [(feeds,)] = self.ask("select count(*) from feeds.feed_metadata")
        begin = time.monotonic()
        self.conn.execute(
            "insert into control.job (type, program, args, task_id, resource_id) "
            "select type, program, args, id, resource_id from control.task where name like 'feed-%'"
        )
        frame.wait_until(lambda: self.ended() >= before + feeds, PATIENCE, pause=0.01)
        seconds = time.monotonic() - begin
        undigested = "select from feeds.feed_item where digested is distinct from hash limit 1"
        frame.wait_until(lambda: not self.ask(undigested), PATIENCE, pause=0.05)
        [(found,)] = self.ask("select count(*) from feeds.feed_item")
        [(bad,)] = self.ask("select count(*) from control.job_log where state <> 'completed'")
        if found != items or bad:
            raise RuntimeError(f"{found} items, not {items}; {bad} polls failed")
        return seconds

    def ended(self) -> int:
        if self.manager.poll() is not None:
            raise RuntimeError("the manager ended early, see above")
        return int(self.ask("select count(*) from control.job_log where type = 'fetch'")[0][0])

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode()).fetchall()

    def end(self) -> None:
        self.manager.terminate()
        try:
            self.manager.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.manager.kill()
            self.manager.wait()
