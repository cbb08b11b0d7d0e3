"""`usher crawl` on one machine with an object store, and a real S3 server."""

import shutil

import pytest

from support.db.fixtures import open_directory, wait_stopped
from support.processes.commands import usher
from support.s3.chunk_pages import fetches, site, store_settings
from support.s3.server import S3Server
from support.site.website import Response
from usher.mgmt.store_owner import OWNER_KEY

pytestmark = pytest.mark.soak


def test_one_machine_keeps_its_chunks_in_the_store(s3_server: S3Server, bucket: str) -> None:
    """`usher crawl` with an embedded database; the second run searches an index whose server lost its disk."""
    directory = open_directory()
    environment = {
        **{
            f"USHER_{name.upper()}": str(value)
            for name, value in store_settings(s3_server, bucket).items()
        },
        "USHER_ALLOW_PRIVATE": "127.0.0.0/8",
        "USHER_DATA": str(directory / "data"),
    }
    try:
        with site(8) as web:
            crawl = ("crawl", "--delay", "0", web.url("/"))
            done = usher(*crawl, environment=environment, cwd=directory)
            assert done.code == 0, done.err
            assert "9 searchable" in done.out + done.err
            assert s3_server.requests.keys(bucket, "usher/index/")
            assert not list((directory / "data").glob("built/**/*.idx"))
            assert not list((directory / "data").glob("content/**/*.warc.gz"))
            shutil.rmtree(directory / "data" / "index")
            web.add("/new", Response(b"<title>New</title><p>velvet new page</p>"))
            done = usher(
                "crawl", "--delay", "0", web.url("/new"), environment=environment, cwd=directory
            )
            assert done.code == 0, done.err
            again = fetches(web)
        chunks = usher(
            "chunks", "list", "--summary", "--json", environment=environment, cwd=directory
        )
        stages = {line["stage"]: line["number"] for line in chunks.json}
        assert stages["error"] == stages["parked"] == 0
        loaded = list((directory / "data").glob("index/*/chunks/*/*.idx"))
        assert len(loaded) == stages["propagated"] > 1, "the server loads them from the store"
        assert set(again.values()) == {1}
        adopted = usher("chunks", "adopt-store", "--yes", environment=environment, cwd=directory)
        assert (adopted.code, "belongs to this database now" in adopted.err) == (0, True)
        assert f"usher/{OWNER_KEY}" in s3_server.requests.keys(bucket)
    finally:
        wait_stopped(directory / "data")
        shutil.rmtree(directory)
