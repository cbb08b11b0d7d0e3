"""The OpenAPI document of a front-end: Schemathesis calls every operation, and each answer is as the document says."""

import asyncio
import importlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from support.index.rows import Rows, library, running_front_end
from usher.http.server.component import healthy
from usher.http.server.probes import probe_endpoints
from usher.search.broker import Broker
from usher.search.cluster_map import ClusterView, MapClient
from usher.search.endpoints import SearchEndpoints
from usher.search.openapi import PARAMETERS, document
from usher.search.query_reports import QueryReports

Case = schemathesis.Case[Any]
START_SECONDS = 60
NOWHERE = "http://127.0.0.1:1"
# Without a cluster: these only describe.
ENDPOINTS = SearchEndpoints(
    Broker(ClusterView(MapClient(NOWHERE, token=""))), QueryReports()
).endpoints()
DOCUMENT = document([*ENDPOINTS, *probe_endpoints(healthy)])
CONFIG = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
described = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
    checks.allow_header_conformance,
]
BOUNDED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
    max_examples=5,
)


def serve(folder: Path, address_found: Future[str], stop: threading.Event) -> None:
    """Run index servers and a front-end until `stop` is set."""

    async def run() -> None:
        async with Rows(folder) as rows:
            await rows.rows(1, 2, library())
            async with running_front_end(rows, folder) as address:
                address_found.set_result(address)
                await asyncio.to_thread(stop.wait)

    asyncio.run(run())


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a front-end in a thread: Schemathesis waits for its answers."""
    address_found: Future[str] = Future()
    stop = threading.Event()
    thread = threading.Thread(
        target=serve, args=(tmp_path_factory.mktemp("front"), address_found, stop)
    )
    thread.start()
    try:
        yield address_found.result(START_SECONDS)
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    # The library that schemathesis asks with has no types.
    with importlib.import_module("requests").Session() as session:
        yield session


def test_the_document_is_the_one_that_is_served(front: str, session: Any) -> None:  # noqa: ANN401
    assert session.get(f"{front}/openapi.json").json() == DOCUMENT


def test_every_endpoint_is_described() -> None:
    paths = DOCUMENT["paths"]
    assert set(PARAMETERS) < {each.path for each in ENDPOINTS} < set(paths)
    assert {"/healthz", "/metrics"} < set(paths)
    assert all(path["get"]["summary"] for path in paths.values())


@described.parametrize()
@BOUNDED
def test_every_operation(case: Case, front: str, session: Any) -> None:  # noqa: ANN401
    case.call_and_validate(front, session, checks=CHECKS)


@pytest.mark.parametrize(
    ("path", "field"), [("/search.json?q=velvet", "results"), ("/api/search?query=velvet", "web")]
)
def test_real_results_are_as_described(
    front: str,
    session: Any,  # noqa: ANN401
    path: str,
    field: str,
) -> None:
    """An answer with results, and no field that the document does not have."""
    answer = session.get(front + path)
    listing = answer.json()
    assert listing["web"]["results"] if field == "web" else listing["results"]
    route = path.partition("?")[0]
    described[route]["GET"].validate_response(answer)
    [schema] = DOCUMENT["paths"][route]["get"]["responses"]["200"]["content"].values()
    name = schema["schema"]["$ref"].rpartition("/")[2]
    assert set(listing) == set(DOCUMENT["components"]["schemas"][name]["properties"])


def test_an_invalid_query_is_a_problem(front: str, session: Any) -> None:  # noqa: ANN401
    answer = session.get(f"{front}/api/search?query=velvet&limit=99")
    assert answer.status_code == 422
    described["/api/search"]["GET"].validate_response(answer)


def test_the_feed_is_unchanged_for_its_reader(front: str, session: Any) -> None:  # noqa: ANN401
    first = session.get(f"{front}/search.atom?q=velvet")
    again = session.get(
        f"{front}/search.atom?q=velvet", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert again.status_code == 304
    described["/search.atom"]["GET"].validate_response(again)
