"""Schemathesis reads our OpenAPI document and asks every operation in it, well and badly.

No answer is a server's error, each is as the document says, and what is refused leaves nothing behind.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from psycopg import sql
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from support.mgmt.endpoints import ENDPOINTS
from support.mgmt.mgmt_process import Mgmt
from support.mgmt.plain_components import Component, at_once
from usher.api import builder as building
from usher.api import index_server, openapi
from usher.api.endpoints import CURRENT_ENDPOINTS

Case = schemathesis.Case[Any]
DOCUMENT = openapi.document(ENDPOINTS)
FEW = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
# The statuses that MGMT may answer to bad data; a request with too many items gets 413.
REJECTIONS = {"expected-statuses": [400, 401, 403, 404, 405, 409, 413, 415, 422, 429]}
REJECTING = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": REJECTIONS}})
OURS = [endpoint.path for endpoint in CURRENT_ENDPOINTS if not endpoint.old]
thorough = (
    schemathesis.openapi.from_dict(DOCUMENT, config=REJECTING)
    .include(path=OURS)
    .exclude(deprecated=True)
)
quick = schemathesis.openapi.from_dict(DOCUMENT, config=FEW).exclude(
    lambda found: (
        found.operation.path in OURS and not found.operation.definition.raw.get("deprecated")
    )
)
SOUND = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
    checks.allow_header_conformance,
]
BOUNDED = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
CRAWLER, BUILDER, SERVER = "crawler:1", "builder:1", "server:1"
CALLERS = dict.fromkeys((one.path for one in building.ENDPOINTS), BUILDER)
CALLERS |= dict.fromkeys((one.path for one in index_server.ENDPOINTS), SERVER)
TABLES = """
select table_schema, table_name from information_schema.tables
where table_schema in ('work', 'control') and table_type = 'BASE TABLE' order by 1, 2
"""
# Who called is known by their call, refused or not; a sign of life is no news.
MET = {("work", "component"), ("work", "event")}
# MGMT stores URLs that the door refused some seconds later, and figures of each minute.
RECORDS = {("work", "refused_url"), ("work", "history")}
REFUSED = 400
BAD = frozenset({REFUSED, 413, 415, 422})


class Book:
    """All that is stored, as far as it takes to see that it changed."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self.conn = conn
        found = conn.execute(TABLES).fetchall()
        self.tables = [(schema, name) for schema, name in found if (schema, name) not in RECORDS]
        self.query = sql.SQL(" union all ").join(map(digest, self.tables))
        self.last = self.read()

    def read(self) -> dict[tuple[str, str], Any]:
        rows = self.conn.execute(self.query).fetchall()
        return {(schema, name): rest for schema, name, *rest in rows}

    def turn(self, status: int) -> None:
        """After a call: what was refused changed nothing."""
        before, self.last = self.last, self.read()
        changed = {name for name in self.tables if before[name] != self.last[name]}
        if status in BAD:
            assert not changed
        elif status >= REFUSED:
            assert changed <= MET


@dataclass(frozen=True, slots=True)
class Asking:
    """Calls to a server, each followed by a look into its book."""

    door: Mgmt
    book: Book
    session: Any

    def check(self, case: Case, *by: schemathesis.CheckFunction) -> None:
        headers = {"X-Usher-Host": CALLERS.get(case.operation.path, CRAWLER), **self.door.proof}
        told = case.call_and_validate(self.door.address, self.session, headers, checks=list(by))
        self.book.turn(told.status_code)


def digest(table: tuple[str, str]) -> sql.Composable:
    """Rows, and their versions; of components all but when they were last seen and called."""
    version = "sum(xmin::text::numeric)::text"
    if table == ("work", "component"):
        version = "sum(hashtext((to_jsonb(t) - 'seen_at' - 'called_at')::text)::numeric)::text"
    return sql.SQL("select {}, {}, count(*), " + version + " from {} t").format(
        *map(sql.Literal, table), sql.Identifier(*table)
    )


@pytest.fixture(scope="module")
def book(door: Mgmt, guestbook: str) -> Iterator[Book]:
    """A database where chunk 1 is being crawled, 2 being built, and 3 wanted, each by its component."""
    at_once(guestbook)
    with psycopg.connect(guestbook, autocommit=True) as conn:
        conn.execute("alter table work.chunk alter column id restart with 1")
        crawler, builder, server = (Component(door, host=one) for one in (CRAWLER, BUILDER, SERVER))
        server.post("/set_component_state", state="online", type="index-server")
        crawler.post("/add_links", links=[f"https://h{n}.example/{n}" for n in range(30)])
        for chunk in (1, 2, 3):
            assert crawler.get("/get_links")["chunk_id"] == chunk
        for chunk in (2, 3):
            crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
        assert len(builder.get("/get_content_chunk_metadata")) == 2
        builder.post("/set_index_chunk_metadata", chunk_id=3, state="built")
        yield Book(conn)


@pytest.fixture(scope="module")
def asking(door: Mgmt, book: Book) -> Iterator[Asking]:
    # One connection for all; the library that schemathesis asks with has no types.
    with importlib.import_module("requests").Session() as session:
        yield Asking(door, book, session)


def test_the_book_sees_what_is_stored(door: Mgmt, book: Book) -> None:
    before = book.read()
    assert door.ask("POST", "/v1/jobs", {"type": "t"}).status == 422
    assert book.read() == before
    assert door.ask("POST", "/v1/jobs", {"type": "t", "program": "p"}).status == 200
    book.last = book.read()
    assert {name for name in book.tables if before[name] != book.last[name]} >= {("control", "job")}


def test_the_document_is_the_one_that_is_served(door: Mgmt) -> None:
    assert door.get("/v1/openapi.json").json == DOCUMENT


@thorough.parametrize()
@settings(BOUNDED, max_examples=3)
def test_every_operation_of_mgmt(case: Case, asking: Asking) -> None:
    asking.check(case, *SOUND, checks.negative_data_rejection)


@quick.parametrize()
@settings(BOUNDED, max_examples=2)
def test_every_other_operation_and_name(case: Case, asking: Asking) -> None:
    asking.check(case, *SOUND)
