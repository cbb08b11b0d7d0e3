"""Uploads to the object store by components that know only MGMT's HTTP API and plain HTTP."""

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, make_hosts_ready
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.s3.server import OPERATOR, S3Server

pytestmark = EMBEDDED
LINKS = [f"https://h.example/{number}" for number in range(5)]
BODY = b"the file of a chunk"
SUM = hashlib.sha256(BODY).hexdigest()
FILE = {"sha256": SUM, "bytes": len(BODY)}


@pytest.fixture
def running(database: str, tmp_path: Path, s3_server: S3Server, bucket: str) -> Iterator[Mgmt]:
    at_once(database)
    settings = {
        "USHER_CHUNK_STORE": f"s3://{bucket}/some/prefix",
        "USHER_S3_ENDPOINT": s3_server.endpoint,
        "USHER_S3_ACCESS_KEY": OPERATOR.access_key,
        "USHER_S3_SECRET_KEY": OPERATOR.secret_key,
    }
    with mgmt(database, tmp_path / "log", settings=settings) as started:
        started.knock(*LINKS)
        make_hosts_ready(database)
        yield started


def component(server: Mgmt, type_: str, host: str) -> Component:
    caller = Component(server, host=host)
    caller.post("/set_component_state", state="online", type=type_)
    return caller


def work_for(caller: Component, path: str) -> Any:  # noqa: ANN401 - JSON
    """What MGMT gives a component, as soon as there is something."""
    answers: list[Any] = []

    def has_work() -> bool:
        answers.append(caller.get(path))
        return bool(answers[-1])

    assert eventually(has_work)
    return answers[-1]


def claim(crawler: Component) -> int:
    answer = work_for(crawler, "/get_links?pages=1")
    assert answer["upload"] is True
    return int(answer["chunk_id"])


def send(method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
    """A plain request, with nothing but the URL."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def put(url: str) -> int:
    return send("PUT", url, BODY)[0]


def pages(number: int = 5) -> list[dict[str, object]]:
    return [{"link": link, "result": "success", "status": 200} for link in LINKS[:number]]


def test_from_the_upload_of_a_crawler_to_the_download_of_a_server(running: Mgmt) -> None:
    crawler = component(running, "crawler", "127.0.0.1:5000")
    builder = component(running, "index-builder", "127.0.0.1:5001")
    server = component(running, "index-server", "127.0.0.1:5002")
    server.post("/set_component_state", state="online", type="index-server", row=1)
    chunk = claim(crawler)
    target = crawler.post("/v1/upload_url", chunk_id=chunk, kind="content", **FILE)
    assert put(target["url"]) == 200
    report = {"chunk_id": chunk, "state": "crawled", "pages": pages(), "stored": True, **FILE}
    crawler.post("/set_content_chunk_metadata", **report)
    crawler.post("/set_content_chunk_metadata", **report)  # its answer was lost
    assert crawler.get("/get_chunks/unpropagated")["chunks"] == []
    [work] = builder.get("/get_content_chunk_metadata")
    assert (work["chunk_id"], work["upload"]) == (chunk, True)
    again = builder.post("/v1/content_url", chunk_id=chunk)["url"]
    for url in (work["url"], again):
        assert send("GET", url) == (200, BODY)
    target = builder.post("/v1/upload_url", chunk_id=chunk, kind="index", **FILE)
    assert put(target["url"]) == 200
    builder.post("/set_index_chunk_metadata", chunk_id=chunk, state="built", stored=True, **FILE)
    assert builder.get("/get_chunks/unpropagated")["chunks"] == []
    [offer] = work_for(server, "/get_chunks")
    assert send("GET", offer["url"]) == (200, BODY)


def test_a_url_permits_one_file_of_a_chunk_that_the_caller_has(
    running: Mgmt, s3_server: S3Server, bucket: str
) -> None:
    crawler = component(running, "crawler", "127.0.0.1:5000")
    other = component(running, "crawler", "127.0.0.1:5003")
    builder = component(running, "index-builder", "127.0.0.1:5001")
    chunk = claim(crawler)
    request = {"chunk_id": chunk, "kind": "content", **FILE}
    assert other.declined("/v1/upload_url", **request) == (409, "not_yours")
    assert builder.declined("/v1/upload_url", **request)[0] in {403, 409}
    assert crawler.declined("/v1/upload_url", **{**request, "kind": "index"})[0] in {403, 409}
    assert crawler.declined("/v1/upload_url", **{**request, "sha256": "../x"})[0] == 422
    assert builder.declined("/v1/content_url", chunk_id=chunk) == (409, "not_yours")
    url = crawler.post("/v1/upload_url", **request)["url"]
    assert put(url.replace(SUM, "0" * 64)) == 403
    assert send("GET", url)[0] == 403
    assert s3_server.requests.keys(bucket) == []
    crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="error")
    assert crawler.declined("/v1/upload_url", **request) == (409, "lease_lost")


def test_a_report_of_a_file_that_was_not_uploaded_is_refused(running: Mgmt) -> None:
    crawler = component(running, "crawler", "127.0.0.1:5000")
    chunk = claim(crawler)
    report = {"chunk_id": chunk, "state": "crawled", "stored": True}
    assert crawler.declined("/set_content_chunk_metadata", **report, **FILE)[0] == 422
    assert crawler.declined("/set_content_chunk_metadata", **report)[0] == 422
    said = crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled", **FILE)
    assert said["state"] == "crawled", "the refused report changed nothing"


def test_without_a_store_nothing_asks_for_uploads(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log") as server:
        server.knock(*LINKS)
        make_hosts_ready(database)
        crawler = component(server, "crawler", "127.0.0.1:5000")
        answer = work_for(crawler, "/get_links?pages=1")
        assert "upload" not in answer
        request = {"chunk_id": answer["chunk_id"], "kind": "content", **FILE}
        assert crawler.declined("/v1/upload_url", **request) == (404, "not_found")
