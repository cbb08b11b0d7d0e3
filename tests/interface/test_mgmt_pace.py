"""A host that asks us to come later is left alone by every crawler."""

from pathlib import Path

from support.mgmt.mgmt_process import mgmt
from support.mgmt.plain_components import Component, at_once, make_hosts_ready, one


def test_all_crawlers_leave_a_host_that_asks_for_rest(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log") as server:
        first, other = (Component(server, host=f"crawler{i}:5000") for i in (1, 2))
        first.post("/add_links", links=[f"https://slow.example/{i}" for i in range(20)])
        given = first.get("/get_links")
        pages = [{"link": link, "result": "success", "status": 200} for link in given["links"]]
        pages[0] |= {"result": "failure", "status": 503, "retry_after": 600}
        first.post(
            "/set_content_chunk_metadata", chunk_id=given["chunk_id"], state="crawled", pages=pages
        )
        assert other.get("/get_links") == {}
        assert first.get("/get_links") == {}
        host = "select trouble from work.hosts where name = 'slow.example'"
        assert one(database, host) == "HTTP 503"
        assert one(database, host.replace("trouble", "ready_at > now() + interval '9 minutes'"))
        make_hosts_ready(database)
        assert len(other.get("/get_links")["links"]) == 5
