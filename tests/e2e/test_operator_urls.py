"""What a person types at the command line: the scheme wins, and private hosts are permitted and tried again."""

from pathlib import Path

from support.processes.crawls import EMBEDDED
from support.processes.terminal import show
from support.site.hostile import page
from support.site.website import Website

pytestmark = EMBEDDED


def test_a_typed_scheme_replaces_the_assumed_one(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Website({"/": page("Plain", '<a href="/next">x</a>'), "/next": page("Next")}) as web:
        bare = f"{web.host}:{web.port}"
        web.stop()  # a server without TLS may keep a TLS client waiting
        with show(data, "crawl", "--delay", "0", bare, dsn=database) as run:
            assert run.ends() == 1, run.logs
            assert f"type: usher crawl http://{bare}/" in run.said
        web.start()
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database) as run:
            assert run.ends() == 0, run.logs
        assert [request.path for request in web.log] == ["/robots.txt", "/", "/next"]
