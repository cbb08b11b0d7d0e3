"""The examples of docs/python.md, run as they stand there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import usher
from support.mgmt.mgmt_process import mgmt
from support.queue.job_runs import manager
from usher import Client
from usher.jobs.testing import drain

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


def example(name: str) -> str:
    """One of the page's programs."""
    part = re.search(rf"<!-- test: {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert part
    return part[1]


def run(name: str, url: str, **names: str) -> None:
    exec(compile(example(name), name, "exec"), {"url": url, **names})  # noqa: S102 - our own page


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop.py").write_text(example("shop"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("shop", None)


@pytest.mark.usefixtures("shop")
def test_in_your_own_transaction(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("create table orders (id bigint primary key)")
    run("transaction", database)
    with pytest.raises(psycopg.errors.UniqueViolation):
        run("transaction", database)
    [ran] = drain(database)
    assert (ran.state, ran.output) == ("completed", "mail for order 7\n")


def test_on_a_connection_of_its_own(
    database: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with manager({"DATABASE_URL": database}, shop):
        run("queue", database)
    assert capsys.readouterr().out == "3\n"


@pytest.mark.usefixtures("shop")
def test_the_helpers_for_tests(database: str) -> None:
    run("testing", database)


def test_the_mgmt_client(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mgmt(database, tmp_path / "log") as server:
        run("client", database, mgmt_url=server.address)
    assert capsys.readouterr().out == "['https://example.com/']\n"


def test_the_public_names() -> None:
    assert {name for name in usher.__all__ if not name.startswith("_")} == {
        name.removeprefix("usher.")
        for name in re.findall(r"^\| `(usher\.\w+)`", PAGE, re.MULTILINE)
    }
    assert usher.jobs.JobQueue.__module__ == "usher.jobs.client"
    assert usher.worker.job.__module__ == "usher.worker"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(usher, "nothing")  # noqa: B009 - mypy knows that it is missing


def test_the_methods_of_the_client_are_listed() -> None:
    table = PAGE.partition("## The MGMT client")[2].partition("| component | methods |")[2]
    listed = set(re.findall(r"`(\w+)`", table.partition("\n\n")[0]))
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert public - {"forget_tickets"} == listed


def test_the_grants_of_the_page(database: str) -> None:
    grants = re.search(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert grants
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create role shop")
        try:
            conn.execute(grants[1].encode())
            conn.execute("set role shop")
            [(id_,)] = conn.execute(
                """select id from control.add_jobs('[{"type": "t", "program": "p"}]')"""
            )
            conn.execute("select * from control.cancel(array[%s::bigint], 'no', now())", [id_])
            state = conn.execute(
                "select state, message from control.job_status(%s)", [id_]
            ).fetchone()
            assert state == ("cancelled", "no")
        finally:
            conn.execute("reset role")
            conn.execute("drop owned by shop")
            conn.execute("drop role shop")
