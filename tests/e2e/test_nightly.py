"""The nightly round as a task: the scheduler makes its job, the manager runs it, the door filters."""

import sys
from pathlib import Path

import psycopg
import pytest

from support.processes.commands import usher
from support.processes.killable import eventually
from support.queue.job_runs import manager
from usher.db.pool import connect
from usher.queue.scheduler import Scheduler


def pages(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as conn:
        query = "select link, state from mgmt.link"
        return dict(conn.execute(query).fetchall())


@pytest.mark.seed("004.13", "004.21")
async def test_a_task_knocks_for_every_due_host(database: str, tmp_path: Path) -> None:
    (tmp_path / "usher.toml").write_text(f'database_url = "{database}"\n')
    environment = {
        "USHER_CONFIG": str(tmp_path / "usher.toml"),
        "USHER_DATA": str(tmp_path / "data"),
    }
    assert usher("add", "due.gov", "later.gov", environment=environment).code == 0
    with psycopg.connect(database) as conn:
        conn.execute(
            "update work.guestbook set state = 'crawled', next_fetch = now() - '1 h'::interval"
        )
        conn.execute(
            "update work.hosts set crawl_started = null, next_fetch = now() + case name "
            "when 'due.gov' then interval '-1 hour' else interval '1 day' end"
        )
    command = (sys.executable, "-m", "usher", "hosts", "recrawl", "--due")
    added = usher(
        *("tasks", "add", "--name", "nightly", "--cron", "0 3 * * *", "--type", "recrawl", "--"),
        *command,
        environment=environment,
    )
    assert added.code == 0, added.err
    with psycopg.connect(database) as conn:
        conn.execute("update control.task set next_run = now() where name = 'nightly'")
    async with await connect(database, role="usher_scheduler") as conn:
        await Scheduler(database, role="usher_scheduler").run_once(conn)
    expected = {"https://due.gov/": "pending", "https://later.gov/": "crawled"}
    with manager(environment, tmp_path):
        admitted = eventually(lambda: pages(database) == expected, 60)
    assert admitted, (pages(database), (tmp_path / "manager.log").read_text()[-3000:])
