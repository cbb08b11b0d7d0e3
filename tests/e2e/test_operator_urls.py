"""What a person types at the command line: the scheme wins, and private hosts are permitted and tried again."""

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


def test_a_typed_scheme_replaces_the_assumed_one(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Website({"/": page("Plain", '<a href="/next">x</a>'), "/next": page("Next")}) as web:
        bare = f"{web.host}:{web.port}"
        web.stop()  # a server without TLS may keep a TLS client waiting
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
