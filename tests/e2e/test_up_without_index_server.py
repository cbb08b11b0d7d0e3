"""`usher up` without its own index server, because row 1 is on OpenSearch."""

from pathlib import Path

import psycopg

from support.processes.commands import usher
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.terminal import show

pytestmark = EMBEDDED
CLUSTER = """
    insert into work.component (host, type, "row", engine, state, state_reason)
    values ('10.0.0.9:8441', 'index-server', 1, 'opensearch', 'error', 'OpenSearch is away')
"""


def types(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as conn:
        return {str(type_) for (type_,) in conn.execute("select type from work.component")}


def test_up_says_that_row_1_is_on_opensearch(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(CLUSTER.encode())
    ran = usher("up", environment={"DATABASE_URL": database, "USHER_DATA": str(tmp_path / "data")})
    assert (ran.code, "Traceback" in ran.err) == (3, False)
    assert "Row 1 is on OpenSearch, by the index server 10.0.0.9:8441." in ran.err
    assert "usher up --no-index-server" in ran.err
    with show(tmp_path / "data", "up", "--no-index-server", dsn=database) as run:
        run.is_up()
        others = {"crawler", "index-builder", "front-end"}
        assert eventually(lambda: others <= types(database), 30), run.logs
        with psycopg.connect(database) as conn:
            servers = conn.execute("select host from work.component where type = 'index-server'")
            assert servers.fetchall() == [("10.0.0.9:8441",)]
        run.ctrl_c()
        assert run.ends() == 0
