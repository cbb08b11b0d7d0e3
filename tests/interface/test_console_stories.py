"""Ten incidents in a real browser, from the first screen to the fix: the screen, the change and the audit entry."""

import json
import time
from collections.abc import AsyncIterator

import pytest

from support.console.filled_stack import at, rows, run
from support.db.fixtures import Server, clone
from support.feeds.stored_feeds import fill as fill_feeds
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component
from support.processes.commands import usher
from support.site.browser import PROGRAM, Browser, Tab

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not here and could not be installed: scripts/packages"
)
SCREEN_SECONDS = 6  # the first screen is read once in 2 seconds
MAIN_TEXT = "document.querySelector('main').innerText"
# The link or button with this label, within the row or list item that contains this text.
CLICK = """((label, near) => {
  const rows = [...document.querySelectorAll('tr, li, p')].filter(row => row.innerText.includes(near));
  const links = (near ? rows : [document]).flatMap(place => [...place.querySelectorAll('a, button')]);
  links.find(link => link.innerText.trim() === label).click();
})"""
LAST_ACTION = (
    "select kind, actor, subject, before, after, command from work.event "
    "where actor is not null order by id desc limit 1"
)


class OperatorSession:
    """An operator with a browser: opens the first screen, clicks, fills in forms."""

    def __init__(self, server: Mgmt, database: str, tab: Tab) -> None:
        self.server, self.database, self.tab = server, database, tab

    def see_first(self, text: str) -> None:
        """Open the first screen until it shows this text."""
        deadline = time.monotonic() + SCREEN_SECONDS
        while True:
            self.tab.open(f"{self.server.address}/")
            if text in self.screen():
                return
            assert time.monotonic() < deadline, (text, self.screen())
            time.sleep(0.3)

    def screen(self) -> str:
        return str(self.tab.ask(MAIN_TEXT))

    def click(self, label: str, near: str = "") -> None:
        script = f"{CLICK}({json.dumps(label)}, {json.dumps(near)})"
        self.tab.after(lambda: self.tab.ask(script))

    def type(self, field: str, text: str) -> None:
        self.tab.ask(f"document.getElementById('f-{field}').value = {json.dumps(text)}")

    def find(self, text: str) -> None:
        """Use the input field of the first screen."""
        self.tab.key("/")
        self.tab.write(text)
        self.tab.after(lambda: self.tab.key("Enter"))

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return rows(self.database, statement)

    def check_audit(self, kind: str, subject: str, after: str, command: str) -> None:
        """The last action is stored and shown, and its screen printed the command."""
        assert command in self.screen()
        [(its_kind, actor, its_subject, _, its_after, its_command)] = self.sql(LAST_ACTION)
        assert (its_kind, actor, its_subject) == (kind, "the operator", subject)
        assert (its_after, its_command) == (after, command)
        self.click("Actions of operators")
        assert command in self.screen() or subject in self.screen()


@pytest.fixture(scope="module")
async def operator(
    migrated: Server, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OperatorSession]:
    folder = tmp_path_factory.mktemp("stories")
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        await fill_feeds(dsn)
        with mgmt(dsn, folder / "log") as server:
            front_end = Component(server, host="10.0.0.2:8451")
            front_end.post("/set_component_state", state="online", type="front-end")
            environment = {"DATABASE_URL": dsn, "USHER_DATA": str(server.data)}
            link = usher("console", "--mgmt", server.address, environment=environment)
            tab = Tab(chromium)
            tab.look()
            tab.open(link.out.strip())
            session = OperatorSession(server, dsn, tab)
            session.click("Sign in")
            yield session
            assert tab.complaints == []
            tab.close()


def component(operator: OperatorSession, host: str, kind: str, **columns: str) -> None:
    """A component as it declared itself and as the watchdog saw it."""
    given = {"host": host, "type": kind, "machine": host.partition(":")[0], **columns}
    names = ", ".join(f'"{name}"' for name in given)
    values = ", ".join(f"'{value}'" for value in given.values())
    run(
        operator.database,
        f"insert into work.component ({names}, seen_at) values ({values}, now())",
    )


def test_a_dead_crawler(operator: OperatorSession) -> None:
    """The screen names it and the command; another crawler registers, and the problem is gone."""
    at(operator.database, "add", "https://waiting.example/")
    component(
        operator, "10.0.1.1:8421", "crawler", health="failure", health_reason="no answer for 3m"
    )
    run(
        operator.database,
        "insert into work.chunk (state, claimed_at, lease_until, crawler_id) "
        "select 'crawling', now(), now() + interval '1 hour', id from work.component where host = '10.0.1.1:8421'",
    )
    operator.see_first("but no crawler is online (1 failed or stopped)")
    assert "usher crawler" in operator.screen()
    operator.click("Component", "The crawler 10.0.1.1:8421 holds needed chunks")
    assert operator.tab.text("h1") == ["10.0.1.1:8421"]
    assert "no answer for 3m" in operator.screen()
    spare = Component(operator.server, host="10.0.1.2:8421")
    spare.post("/set_component_state", state="online", type="crawler")
    operator.see_first("1 crawler")
    assert "no crawler is online" not in operator.screen()
    assert "10.0.1.2:8421" in operator.screen()
    [(state,)] = operator.sql("select state from work.component where host = '10.0.1.2:8421'")
    assert state == "online"
    [(kind,)] = operator.sql(
        "select e.kind from work.event e join work.component c on c.id = e.component_id "
        "where c.host = '10.0.1.2:8421' order by e.id limit 1"
    )
    assert kind == "registered"
    operator.click("Events")
    rows = operator.tab.text("tbody tr")
    assert any("registered" in row and "10.0.1.2:8421" in row for row in rows)


def test_a_host_that_answers_429(operator: OperatorSession) -> None:
    at(operator.database, "add", "https://busy.example/")
    run(
        operator.database,
        "update work.hosts set troubles = 4, trouble = 'HTTP 429', trouble_at = now(), "
        "claim_at = now() + interval '1 hour', ready_at = now() + interval '1 hour', empty_checks = 0 "
        "where name = 'busy.example'",
    )
    operator.see_first("HTTP 429")
    operator.click("busy.example", "HTTP 429")
    assert "failed 4 times in a row: HTTP 429" in operator.screen()
    operator.click("Set the delay")
    operator.type("seconds", "30")
    operator.click("Set the delay")
    [(delay,)] = operator.sql(
        "select crawl_delay::text from work.hosts where name = 'busy.example'"
    )
    assert delay == "00:00:30"
    operator.check_audit(
        "console_host_delay", "busy.example", "30s", "usher hosts set busy.example --crawl-delay 30"
    )


def test_a_filter_that_rejects_too_much(operator: OperatorSession) -> None:
    """The path of a URL names the filter; the preview says what a narrower filter does."""
    urls = [f"https://shop.example/{word}/1" for word in ("news", "cal", "about")]
    at(operator.database, "add", *urls)
    wide = '{"name": "wide", "rule": "path", "matches": "^/"}'
    narrow = '[{"name": "narrow", "rule": "path", "matches": "^/cal/"}]'
    at(operator.database, "hosts", "set", "shop.example", "--filter", wide)
    operator.see_first("Problems")
    operator.find("https://shop.example/new")
    assert operator.tab.text(".path .stopped strong") == ["Door"]
    assert "wide" in operator.screen()
    operator.click("Host")
    operator.click("Set the filters")
    operator.type("filters", narrow)
    operator.click("Preview")
    assert "2 that the present filters reject would pass" in operator.screen()
    operator.click("Set the filters")
    [(filters,)] = operator.sql("select filters from work.hosts where name = 'shop.example'")
    assert isinstance(filters, list)
    assert [rule["name"] for rule in filters] == ["narrow"]
    command = f"usher hosts set shop.example --filter '{narrow[1:-1]}'"
    operator.check_audit("console_host_filters", "shop.example", narrow, command)


def test_a_full_disk(operator: OperatorSession) -> None:
    """The screen says where; the operator drains the server, so that others take its chunks."""
    component(
        operator,
        "10.0.2.1:8441",
        "index-server",
        row="1",
        state="waiting",
        state_reason="Disk full: only 12 MB are free at /data.",
    )
    operator.see_first("The index-server 10.0.2.1:8441 accepts no more work.")
    assert "Free some space there" in operator.screen()
    operator.click("Component", "10.0.2.1:8441 accepts no more work")
    assert "12 MB are free" in operator.screen()
    operator.click("Drain")
    operator.click("Drain")
    assert operator.sql("select draining from work.component where host = '10.0.2.1:8441'") == [
        (True,)
    ]
    command = "usher components drain 10.0.2.1:8441"
    operator.check_audit("console_component_drain", "10.0.2.1:8441", "draining", command)


def test_an_incomplete_row(operator: OperatorSession) -> None:
    """A row lacks a chunk, because its only healthy server drains."""
    component(operator, "10.0.3.1:8441", "index-server", row="3", draining="true")
    run(
        operator.database,
        'update work.settings set "rows" = 3, placed_rows = 3',
        "insert into work.chunk (state, claimed_at, crawled_at, index_state, built_at) "
        "values ('crawled', now(), now(), 'built', now() - interval '1 hour')",
        'insert into work.unplaced_chunk ("row", chunk_id) select 3, max(id) from work.chunk',
    )
    operator.see_first("row 3 lacks 1")
    assert "incomplete" in operator.screen()
    operator.click("Components", "row 3 lacks 1")
    operator.click("Use again", "10.0.3.1:8441")
    operator.click("Use again")
    assert operator.sql("select draining from work.component where host = '10.0.3.1:8441'") == [
        (False,)
    ]
    command = "usher components undrain 10.0.3.1:8441"
    operator.check_audit("console_component_undrain", "10.0.3.1:8441", "in use", command)


def test_a_type_whose_jobs_all_fail(operator: OperatorSession) -> None:
    """The operator sees that a type fails, pauses it, and later retries all failed jobs."""
    run(
        operator.database,
        'insert into control.job_log (id, type, program, state, message, host_rule, start, "end", attempts) '
        "select nextval(pg_get_serial_sequence('control.job', 'id')), 'thumbs', 'convert', 'permanent-error', "
        "'convert: not found', '', now(), now(), 1 from generate_series(1, 3)",
    )
    operator.see_first("All 3 jobs of type thumbs that ended in the last hour failed")
    operator.click("Pause the type", "jobs of type thumbs")
    operator.click("Pause the type")
    assert operator.sql("select type from control.paused_type") == [("thumbs",)]
    operator.check_audit("console_type_pause", "thumbs", "paused", "usher jobs pause thumbs")
    operator.see_first("3 jobs failed in the last hour")
    operator.click("Failed jobs", "failed in the last hour")
    assert "convert: not found" in operator.screen()
    operator.click("Retry all that match")
    assert "3 jobs match now" in operator.screen()
    operator.click("Retry all that match")
    assert operator.sql("select count(*) from control.job where type = 'thumbs'") == [(3,)]
    command = "usher jobs retry --state permanent-error --limit 3 --yes"
    operator.check_audit(
        "console_jobs_retry", "permanent-error", "3 retried, 0 wait or run already", command
    )


def test_a_dead_feed(operator: OperatorSession) -> None:
    """The list of failing feeds says why; the operator disables its task."""
    at(operator.database, "tasks", "add", "--name", "feed-3", "--hour", "2", "--", "true")
    operator.see_first("Problems")
    operator.click("Feeds")
    operator.click("Failing 1")
    assert "HTTP 503 Service Unavailable" in operator.screen()
    operator.see_first("Problems")
    operator.click("Tasks")
    operator.click("Disable", "feed-3")
    operator.click("Disable")
    [(task, state)] = operator.sql("select id, state from control.task where name = 'feed-3'")
    assert state == "disabled"
    command = f"usher tasks disable {task}"
    operator.check_audit("console_task_disable", str(task), "disabled", command)


def test_a_queue_that_a_resource_blocks(operator: OperatorSession) -> None:
    at(operator.database, "resources", "set", "printer", "--capacity", "1")
    at(operator.database, "jobs", "add", "--type", "print", "--resource", "printer", "--", "true")
    at(operator.database, "resources", "pause", "printer")
    operator.see_first("The resource printer is paused, and 1 job waits for it.")
    operator.click("Resume", "The resource printer is paused")
    operator.click("Resume")
    assert operator.sql("select capacity from control.resource where name = 'printer'") == [(1,)]
    command = "usher resources resume printer"
    operator.check_audit("console_resource_resume", "printer", "active", command)


def test_a_leaked_token(operator: OperatorSession) -> None:
    at(operator.database, "tokens", "add", "leaked", "--scope", "admin")
    operator.see_first("Problems")
    operator.click("Tokens")
    assert "valid" in operator.tab.text("tbody tr")[0]
    operator.click("Revoke", "leaked")
    operator.click("Revoke")
    [(is_revoked,)] = operator.sql(
        "select revoked_at is not null from work.token where name = 'leaked'"
    )
    assert is_revoked
    operator.check_audit("console_token_revoke", "leaked", "revoked", "usher tokens revoke leaked")


def test_a_page_that_must_be_removed_now(operator: OperatorSession) -> None:
    url = "https://news.example/secret"
    at(operator.database, "add", url)
    operator.see_first("Problems")
    operator.find(url)
    assert operator.tab.text("h1") == ["Explanation"]
    operator.click("Remove")
    assert "news.example/secret covers 1 known page" in operator.screen()
    operator.type("reason", "a court order")
    operator.click("Remove")
    [(target, reason)] = operator.sql("select target, reason from work.removal")
    assert (target, reason) == ("news.example/secret", "a court order")
    [(number,)] = operator.sql("select id from work.removal")
    command = f"usher remove {url} --reason 'a court order' --yes"
    operator.check_audit("console_page_remove", url, f"removal {number}", command)
    operator.see_first("Problems")
    operator.find(url)
    assert operator.tab.text(".path .stopped strong") == ["Door"]
