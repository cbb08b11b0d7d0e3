"""Two servers for a failover: a primary of ours and its streaming standby."""

from pathlib import Path

import psycopg

from usher.db.embedded.account_files import give_directory
from usher.db.embedded.cluster import Cluster


class Standby(Cluster):
    """A copy that follows a primary until it is promoted."""

    def ready(self) -> bool:
        return self.status() in {"ready", "standby"} and self.alive()

    def promote(self) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as conn:
            assert conn.execute("select pg_promote()").fetchone() == (True,)


def standby(primary: Cluster, data: Path, port: int) -> Standby:
    """Copy the primary as it runs; the copy follows it from its start on."""
    data.mkdir(mode=0o711)
    copy = Standby(data, primary.binaries, primary.account, port)
    give_directory(copy.pgdata, copy.account)
    where = f"host={primary.sockets} port={primary.port()} user=usher password={primary.password()}"
    (data / "password").write_text(primary.password())
    code, said = primary.account.run(
        [
            primary.binaries / "pg_basebackup",
            "-D",
            str(copy.pgdata),
            "-R",
            "-c",
            "fast",
            "-d",
            where,
        ]
    )
    assert code == 0, said
    copy.prepare()
    return copy


def rows_on(dsn: str) -> list[tuple[int, ...]]:
    with psycopg.connect(dsn) as conn:
        if conn.execute("select to_regclass('kept')").fetchone() == (None,):
            return []
        return conn.execute("select number from kept order by number").fetchall()
