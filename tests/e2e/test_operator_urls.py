"""What a person types at the command line: the scheme wins, and private hosts are permitted and tried again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest

from support.processes.commands import Ran, usher
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.terminal import show
from support.site.hostile import page
from support.site.nginx import NGINX, served
from support.site.website import Website

pytestmark = EMBEDDED


@pytest.mark.soak
def test_a_typed_scheme_replaces_the_assumed_one(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Website({"/": page("Plain", '<a href="/next">x</a>'), "/next": page("Next")}) as web:
        bare = f"{web.host}:{web.port}"
        web.stop()  # a server without TLS may keep a TLS client waiting
        for _ in range(2):
            with show(data, "crawl", "--delay", "0", bare, dsn=database) as run:
                assert run.ends() == 1, run.logs
                assert f"type: usher --data {data} crawl http://{bare}/" in run.said
        web.start()
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database) as run:
            assert run.ends() == 0, run.logs
        assert [request.path for request in web.log] == ["/robots.txt", "/", "/next"]


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed: scripts/packages")
def test_a_crawl_uses_http_if_the_host_has_no_https(database: str, tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "root"
    root.mkdir()
    (root / "index.html").write_text("<title>Plain</title><p>Some wordsx here.</p>")
    with served(root, tmp_path) as web:
        bare = f"127.0.0.1:{web.port}"
        typed = f"https://localhost:{web.port}/"
        with show(data, "crawl", "--delay", "0", typed, dsn=database) as run:
            assert run.ends() == 1, run.logs
            assert "The crawl uses" not in run.said
        with show(data, "crawl", "--delay", "0", bare, dsn=database, terminal=True) as run:
            assert run.ends() == 0, run.logs
        line = f"{bare} has no https (the host does not speak TLS). The crawl uses http://{bare}/"
        assert run.said.count(line) == 1
        assert (200, "/") in web.requests()


class HttpOnly(BaseHTTPRequestHandler):
    """Answers http, and resets the connection when a client begins TLS."""

    def handle(self) -> None:
        if self.connection.recv(1, socket.MSG_PEEK) == b"\x16":
            self.refuse_tls()
        else:
            super().handle()

    def refuse_tls(self) -> None:
        pass  # to close a connection with unread data resets it

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Plain</title><p>Some wordsx here.</p>")

    def log_message(self, *_: object) -> None:
        pass


class HttpOnlyWithEnd(HttpOnly):
    """Ends the stream when a client begins TLS."""

    def refuse_tls(self) -> None:
        self.connection.recv(65_536)


@contextmanager
def http_only(handler: type[HttpOnly]) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.soak
@pytest.mark.parametrize("handler", [HttpOnly, HttpOnlyWithEnd])
def test_a_crawl_uses_http_if_the_host_closes_connections_for_https(
    database: str, tmp_path: Path, handler: type[HttpOnly]
) -> None:
    data = tmp_path / "data"
    with http_only(handler) as web:
        bare = f"127.0.0.1:{web.server_port}"
        with show(data, "crawl", "--delay", "0", f"https://{bare}/", dsn=database) as run:
            assert run.ends() == 1, run.logs  # the operator typed https
        with show(data, "crawl", "--delay", "0", bare, dsn=database, terminal=True) as run:
            assert run.ends() == 0, run.logs
    lost = "the connection was lost during the TLS handshake"
    assert f"{bare} has no https ({lost}). The crawl uses http://{bare}/" in run.said
    assert "done: 1 page fetched" in run.said


def failed_pages(database: str) -> int:
    with psycopg.connect(database) as conn:
        query = "select count(*) from work.guestbook where state = 'error'"
        return sum(number for (number,) in conn.execute(query.encode()))


def test_private_hosts_are_added_to_a_running_stack(database: str, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "urls"

    def at(*words: str) -> Ran:
        return usher(*words, environment={"DATABASE_URL": database, "USHER_DATA": str(data)})

    with (
        Website({"/": page("Named")}) as named,
        Website({"/": page("Allowed")}, host="127.0.5.1") as allowed,
        Website({"/": page("Late")}, host="127.0.5.2") as late,
        show(data, "up", dsn=database) as run,
    ):
        late.stop()
        file.write_text(allowed.url("/"))
        run.is_up()
        assert at("add", "--file", str(file)).code == 0
        assert at("add", named.url("/"), late.url("/")).code == 0
        assert eventually(lambda: failed_pages(database) == 2, 60), run.logs
        assert named.asked("/")
        assert not allowed.log  # a file grants nothing
        late.start()
        assert at("hosts", "set", allowed.url("/"), "--allow-private").code == 0
        assert at("add", "--pass", late.url("/")).code == 0
        assert eventually(lambda: bool(allowed.asked("/") and late.asked("/")), 30), run.logs
        run.ctrl_c()
        assert run.ends() == 0
