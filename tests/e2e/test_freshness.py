"""`usher up` keeps pages fresh: the nightly recrawl is a task that it adds once, and commands state the next visit."""

from pathlib import Path

import pytest

from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.pseudo_terminal import TerminalRun, at_terminal
from support.processes.terminal import show
from support.site.hostile import links, page
from support.site.website import Website

DUE = (
    "update work.hosts set next_fetch = now() - interval '1 hour'; "
    "update work.guestbook set next_fetch = now() - interval '1 hour'"
)


@pytest.mark.soak
def test_due_hosts_are_recrawled_every_night_until_the_operator_removes_the_task(
    data: Path,
) -> None:
    def usher(*words: str) -> TerminalRun:
        return at_terminal(*words, environment={"USHER_DATA": str(data)})

    with Website({"/": page("Start", links("/a")), "/a": page("Page a", "<p>fresh words")}) as web:
        host = f"127.0.0.1:{web.port}"
        with show(data, "crawl", "--delay", "0", web.url("/")) as run:
            assert run.ends(60) == 0, run.logs
        assert "nightly-recrawl" not in usher("tasks", "list").text  # a crawl runs no tasks
        with show(data, "up") as run:
            run.is_up()
            command = f"usher --data {data} tasks show nightly-recrawl"
            assert f"Due hosts are recrawled every night: {command}" in run.said
            listed = usher("tasks", "list").text
            assert "cron 0 2 * * *" in next(
                line for line in listed.splitlines() if "nightly-recrawl" in line
            )
            visit = "next visit  In 30 days (monthly), with the recrawl of that night."
            assert visit in usher("hosts", "show", host).text
            explained = usher("explain", web.url("/a")).text
            assert "next visit  In 30 days (monthly).\n" in explained
            assert f"            Host: {visit.removeprefix('next visit  ')}\n" in explained
            assert usher("db", "shell", "--schema", "work", "--", "-c", DUE).code == 0
            due = "next visit  With the next recrawl: every night with `usher up`, or now with `usher hosts recrawl`."
            assert due in usher("hosts", "show", host).text
            before = len(web.log)
            assert usher("tasks", "run", "nightly-recrawl").code == 0
            fetched = eventually(lambda: {ask.path for ask in web.log[before:]} >= {"/", "/a"}, 60)
            assert fetched, (run.logs, usher("jobs", "log").text)
            assert eventually(lambda: "OK 1 hosts admitted" in usher("jobs", "log").text, 20)
            assert usher("hosts", "pause", host).code == 0
            assert "next visit  None while the host is paused." in usher("hosts", "show", host).text
            assert usher("tasks", "remove", "nightly-recrawl", "--yes").code == 0
            run.ctrl_c()
            assert run.ends() == 0
        with show(data, "up") as run:
            run.is_up()
            assert "nightly-recrawl" not in usher("tasks", "list").text
            assert "every night" not in run.said
            run.ctrl_c()
            assert run.ends() == 0


@EMBEDDED
def test_a_database_that_jobs_cannot_find_gets_no_recrawl_task(
    database: str, tmp_path: Path
) -> None:
    with show(tmp_path / "data", "up", dsn=database) as run:
        run.is_up()
        assert "Usher does not recrawl by itself" in run.said
        assert "→ set database_url in usher.toml" in run.said
        listed = at_terminal("tasks", "list", environment={"DATABASE_URL": database}).text
        assert "nightly-recrawl" not in listed
        run.ctrl_c()
        assert run.ends() == 0
