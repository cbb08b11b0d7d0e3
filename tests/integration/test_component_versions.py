"""The versions of components and processes: declared, stored, and reported where they do not fit together."""

import json
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import mgmt, watchdog
from support.mgmt.plain_components import Component
from support.processes.commands import Ran, usher
from support.processes.killable import eventually
from usher import __version__
from usher.db.pool import connect
from usher.mgmt.running_versions import running_versions
from usher.versions import minor_version

STATE = "/set_component_state"
OWN = minor_version(__version__)
assert OWN
NEXT = f"{OWN.major}.{OWN.minor + 1}.0"
DISTANT = f"{OWN.major}.{OWN.minor + 2}.0"


def stored(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute("select host, version from work.component").fetchall())


def status(dsn: str) -> Ran:
    return usher("status", "--json", environment={"DATABASE_URL": dsn})


def problems(ran: Ran) -> list[str]:
    return [item["words"] for item in ran.json["holdups"] if item["kind"] == "versions"]


def declare(component: Component, **more: object) -> None:
    body = {"state": "online", "type": "crawler", **more}
    reply = component.ask("POST", STATE, body)
    assert (reply.status, reply.json["version"]) == (200, __version__)


def test_components_declare_their_versions(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log", level="warning") as server:
        old = Component(server, host="10.0.0.1:5000")
        new = Component(server, host="10.0.0.2:5000")
        declare(old)  # a component of another make, or from before versions were declared
        declare(new, version=__version__)
        assert stored(database) == {"10.0.0.1:5000": "", "10.0.0.2:5000": __version__}
        assert problems(status(database)) == []
        declare(new, version=NEXT)
        new.ask("POST", STATE, {"state": "error", "reason": "disk full"})
        assert stored(database)["10.0.0.2:5000"] == NEXT  # kept: this call is no registration
        [problem] = problems(status(database))
        assert problem == (
            f"A process that uses the database has {__version__}, older than components: "
            f"crawler 10.0.0.2:5000 ({NEXT})."
        )
        assert [(line["event"], line["component"]) for line in server.lines] == [
            ("version", "10.0.0.2:5000")
        ]
        assert "upgrade MGMT first" in server.lines[0]["problem"]
        changes = usher("components", "events", "--json", environment={"DATABASE_URL": database})
        versions = [event for event in changes.json if event["kind"] == "version"]
        assert [(event["before"], event["after"]) for event in versions] == [(__version__, NEXT)]
        listed = usher("components", "list", environment={"DATABASE_URL": database})
        assert f" {NEXT} " in listed.out
        declare(new, version=__version__)  # it goes back
        assert problems(status(database)) == []


def test_a_newer_mgmt_names_components_that_are_too_old(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into work.component (host, type, version) values "
            "('a:1', 'crawler', %s), ('b:1', 'crawler', %s), ('c:1', 'front-end', %s)",
            [__version__, __version__, DISTANT],
        )
    found = problems(status(database))
    assert any("more than one minor version older" in problem for problem in found)
    assert any("crawler a:1 and 1 more" in problem for problem in found)
    doctor = usher("doctor", environment={"DATABASE_URL": database})
    assert "more than one minor version older" in doctor.out + doctor.err


async def test_processes_are_known_by_their_sessions(database: str) -> None:
    with watchdog(database):
        assert eventually(lambda: status(database).json["work"]["last_round"], 30)
        async with await connect(database) as conn:
            for role in ("none", "usher_reader", "usher_mgmt"):
                await conn.execute(f"set role {role}".encode())
                assert (await running_versions(conn)).processes == [__version__]
            await conn.execute(b"set role usher_worker")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await conn.execute("select work.session_versions()")


def test_the_database_is_used_by_processes_that_are_too_far_apart(database: str) -> None:
    with psycopg.connect(database, application_name=f"usher {DISTANT}"):
        [problem] = problems(status(database))
        assert problem.startswith(
            f"Processes that use the database have {__version__} and {DISTANT}"
        )
        shown = usher("status", environment={"DATABASE_URL": database})
        assert f"{DISTANT} (processes that use the database)" in shown.out
    assert json.loads(status(database).out)["work"]["versions"]["components"] == []
