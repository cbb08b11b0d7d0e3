"""A database with one of each thing that the console shows and acts on."""

from typing import Any

import psycopg

from support.mgmt.mgmt_process import Mgmt
from support.mgmt.plain_components import Component
from support.processes.commands import usher

HOST, PAGE = "a.example", "https://a.example/page"


def rows(database: str, statement: str) -> list[Any]:
    with psycopg.connect(database, autocommit=True) as conn:
        return conn.execute(statement.encode()).fetchall()


def run(database: str, *statements: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def at(database: str, *words: str) -> None:
    ran = usher(*words, environment={"DATABASE_URL": database})
    assert ran.code == 0, (words, ran.err)


def fill(database: str, server: Mgmt) -> None:
    """One of each thing that an action acts on; the first job has the number 1."""
    run(database, "alter table control.job alter column id restart")
    at(database, "add", PAGE, "https://a.example/gone")
    at(database, "remove", "https://a.example/gone", "--reason", "old")
    at(database, "resources", "set", "site", "--capacity", "1")
    at(database, "jobs", "add", "--type", "fetch", "--", "true")
    at(database, "tasks", "add", "--name", "nightly", "--hour", "2", "--", "true")
    at(database, "tokens", "add", "leaked", "--scope", "read")
    server_ = Component(server, host="10.0.0.9:8441")
    server_.post("/set_component_state", state="online", type="index-server")
    run(
        database,
        "insert into work.chunk (id, state, claimed_at, crawled_at, index_state, build_attempts, reason) "
        "overriding system value values (1, 'crawled', now(), now(), 'parked', 5, 'corrupt')",
    )
