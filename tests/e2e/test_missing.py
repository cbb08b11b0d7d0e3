"""Files that vanish between two components, with real processes: every page can be found in the end."""

from pathlib import Path

import pytest

from support.index.stack import running_stack
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = EMBEDDED
PAGES = 20
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "30")
EVENTS = (
    "select kind, count(distinct chunk_id) from work.event where kind like '%%missing' group by 1"
)


def site() -> Website:
    every = "".join(f"<a href='/{number}'>{number}</a>" for number in range(PAGES))
    front = Response(f"<title>The house</title><p>velvet front</p>{every}".encode())
    pages = {
        f"/{number}": Response(f"<title>Seat</title><p>velvet number{number}</p>".encode())
        for number in range(PAGES)
    }
    return Website({"/": front, **pages})


@pytest.mark.soak
def test_what_was_lost_before_a_server_loaded_it_is_found_in_the_end(
    database: str, tmp_path: Path
) -> None:
    with site() as web, running_stack(database, tmp_path) as stage:
        stage.start("builder", "builder", "--processes", "1")
        stage.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        stage.crawl.crawler("crawler", "--pages", "4")
        stage.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: stage.crawl.states() == {"crawled": PAGES + 1}, 60)
        assert eventually(lambda: set(stage.chunks()) == {"built"}, 60), stage.crawl.log[-4000:]
        deleted, cut, whole_loss, *_ = sorted((tmp_path / "data").glob("built/*/*/*.idx"))
        deleted.unlink()
        cut.write_bytes(cut.read_bytes()[:-20])
        whole_loss.unlink()
        [content] = (tmp_path / "data").glob(f"**/{whole_loss.stem}.warc.gz")
        content.unlink()
        stage.servers(rows=1, each=1)
        assert eventually(lambda: "propagated" in stage.chunks(), 60), stage.crawl.log[-4000:]
        urls = sorted([web.url("/"), *(web.url(f"/{number}") for number in range(PAGES))])
        found = eventually(lambda: stage.find(1, "velvet") == urls, 120)
        assert found, (stage.find(1, "velvet"), stage.chunks(), stage.crawl.log[-4000:])
        assert dict(stage.crawl.ask(EVENTS)) == {"index_missing": 3, "content_missing": 1}
        stage.propagated(60)
