"""Actions of the console: each has the effect of the command line that it prints, and an audit event."""

import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from support.console.filled_stack import HOST, PAGE, fill, rows, run
from support.console.signed_in import FormClient, signed_in
from support.db.fixtures import Server, clone
from support.mgmt.mgmt_process import mgmt
from support.processes.commands import usher
from usher.console.actions.registry import ACTIONS

COMMAND = re.compile(r"<dt>Command</dt><dd><code>(.*?)</code>")


@dataclass(frozen=True)
class ActionCase:
    """An action, its fields, the state before as SQL, and what must be the same after the command."""

    fields: dict[str, str]
    observe: str
    prepare: tuple[str, ...] = ()


POLICY = f"select policy, policy_reason from work.hosts where name = '{HOST}'"
CASES = {
    "page-recrawl": ActionCase(
        {"url": PAGE},
        "select state, priority from work.guestbook where path = '/page'",
        (
            "update work.guestbook set state = 'crawled', last_fetched = now(), next_fetch = now() + '9 days'",
        ),
    ),
    "pages-recrawl": ActionCase(
        {"host": HOST, "state": "error", "limit": "2"},
        "select path, state from work.guestbook order by path",
        ("update work.guestbook set state = 'error', status = 503, failures = 1",),
    ),
    "pages-remove": ActionCase(
        {"host": HOST, "state": "pending", "limit": "2", "because": "a notice"},
        "select target, paths, reason, undone_at is null from work.removal order by target",
    ),
    "page-remove": ActionCase(
        {"target": PAGE, "reason": "a notice; rm -rf $HOME"},
        "select target, reason, undone_at is null from work.removal where reason like 'a notice;%'",
        ("update work.removal set undone_at = now(), undone_by = 'x' where reason = 'a notice'",),
    ),
    "removal-undo": ActionCase(
        {"target": "https://a.example/gone"},
        "select target, undone_at is null from work.removal",
    ),
    "host-pause": ActionCase({"host": HOST, "reason": 'it\'s "slow"'}, POLICY),
    "host-open": ActionCase(
        {"host": HOST}, POLICY, ("update work.hosts set policy = 'paused', policy_reason = 'x'",)
    ),
    "host-block": ActionCase({"host": HOST, "reason": "spam"}, POLICY),
    "host-cadence": ActionCase(
        {"host": HOST, "cadence": "36h"}, "select cadence from work.hosts where name = 'a.example'"
    ),
    "host-delay": ActionCase(
        {"host": HOST, "seconds": "2.5"},
        "select crawl_delay from work.hosts where name = 'a.example'",
    ),
    "host-filters": ActionCase(
        {"host": HOST, "filters": '[{"name": "cal", "rule": "path", "matches": "^/cal/"}]'},
        "select filters from work.hosts where name = 'a.example'",
    ),
    "host-stop": ActionCase(
        {"host": HOST},
        "select path, state, crawl_started is null from work.guestbook join work.hosts using (domain64) order by path",
        (
            "update work.guestbook set state = 'pending', admitted_at = now()",
            "update work.hosts set crawl_started = now()",
        ),
    ),
    "host-recrawl": ActionCase(
        {"host": HOST, "pages": "all"},
        "select path, state from work.guestbook order by path",
        (
            "update work.hosts set policy = 'open', policy_reason = ''",
            "update work.guestbook set state = 'crawled', last_fetched = now(), next_fetch = now() + '9 days'",
        ),
    ),
    "job-retry": ActionCase(
        {"job": "1"},
        "select state, scheduled <= now() from control.job order by id",
        (
            "update control.job set state = 'temporary-error', attempts = 1, scheduled = now() + '1 day'",
        ),
    ),
    "jobs-retry": ActionCase(
        {"state": "temporary-error", "type": "fetch", "limit": "1"},
        "select state, scheduled <= now() from control.job order by id",
        (
            "update control.job set state = 'temporary-error', attempts = 1, scheduled = now() + '1 day'",
        ),
    ),
    "job-cancel": ActionCase(
        {"job": "1", "reason": "wrong host"}, "select state, message from control.job_log"
    ),
    "type-pause": ActionCase(
        {"type": "fetch", "reason": "down"}, "select type, reason from control.paused_type"
    ),
    "type-resume": ActionCase(
        {"type": "fetch"},
        "select type from control.paused_type",
    ),
    "task-disable": ActionCase({"task": "1"}, "select state from control.task"),
    "task-enable": ActionCase(
        {"task": "1"},
        "select state from control.task",
        ("update control.task set state = 'disabled'",),
    ),
    "task-run": ActionCase({"task": "1"}, "select task_id, program from control.job order by id"),
    "resource-pause": ActionCase(
        {"resource": "site"}, "select name, capacity, paused_capacity from control.resource"
    ),
    "resource-resume": ActionCase(
        {"resource": "site"},
        "select name, capacity, paused_capacity from control.resource",
    ),
    "job-add": ActionCase(
        {"type": "fetch", "command": "sh -c 'echo \"a b\"'", "resource": "site"},
        "select type, program, args, resource_id, state from control.job order by id",
    ),
    "resource-set": ActionCase(
        {"resource": "site", "capacity": "3", "interval": "90s"},
        "select name, capacity, interval from control.resource",
    ),
    "task-add": ActionCase(
        {
            "name": "report",
            "command": "report.sh",
            "cron": "0 8 * * MON",
            "timezone": "Europe/Paris",
            "type": "fetch",
        },
        "select name, type, program, args, periodicity, hour, minute, cron, timezone, resource_id from control.task",
    ),
    "task-edit": ActionCase(
        {
            "task": "1",
            "hour": "5",
            "minute": "30",
            "name": "early",
            "command": "sh -c 'echo \"a b\"'",
            "resource": "site",
        },
        "select name, program, args, periodicity, hour, minute, cron, resource_id from control.task",
    ),
    "jobs-cancel": ActionCase(
        {"state": "pending", "type": "fetch", "limit": "1", "because": "wrong host"},
        "select state, message from control.job_log order by id",
        ("update control.job set state = 'pending' where type = 'fetch'",),
    ),
    "token-revoke": ActionCase(
        {"token": "leaked"}, "select revoked_at is null from work.token where name = 'leaked'"
    ),
    "chunk-retry": ActionCase(
        {"chunk": "1"},
        "select state, index_state, build_attempts from work.chunk",
    ),
    "component-drain": ActionCase(
        {"component": "10.0.0.9:8441"}, "select draining from work.component"
    ),
    "component-undrain": ActionCase(
        {"component": "10.0.0.9:8441"},
        "select draining from work.component",
        ("update work.component set draining = true",),
    ),
}


# What they change was not there before.
WITHOUT_VALUE_BEFORE = {"job-add", "task-add", "task-run", "host-recrawl"}


@pytest.fixture
async def databases(migrated: Server) -> AsyncIterator[tuple[str, str]]:
    """Two equal databases: one for the console, one for the command line."""
    how = f" template {migrated.template} strategy file_copy"
    async for console in clone(migrated, how):
        async for commands in clone(migrated, how):
            yield console, commands


def test_every_action_has_a_case() -> None:
    assert CASES.keys() == ACTIONS.keys()


def test_actions_have_the_effect_of_their_command_line(
    databases: tuple[str, str], tmp_path: Path
) -> None:
    """The same actions in two databases: by the form in one, by the printed command in the other."""
    by_form, by_command = databases
    with (
        mgmt(by_form, tmp_path / "form") as server,
        mgmt(by_command, tmp_path / "command") as other,
    ):
        fill(by_form, server)
        fill(by_command, other)
        admin = signed_in(server, by_form, "admin")
        for name, case in CASES.items():
            run(by_form, *case.prepare)
            run(by_command, *case.prepare)
            before = rows(by_form, case.observe)
            assert before == rows(by_command, case.observe), name
            command = do(admin, name, case.fields)
            ran = usher(*command, environment={"DATABASE_URL": by_command})
            assert ran.code == 0, (name, command, ran.err)
            after = rows(by_form, case.observe)
            assert after != before, name
            assert after == rows(by_command, case.observe), name
            check_audit(by_form, name, case.fields, command)


def do(admin: FormClient, name: str, fields: dict[str, str]) -> list[str]:
    """Open the form, send it, and return the words of the printed command."""
    form = admin.page(f"/actions/{name}?{urlencode(fields)}")
    for field in fields:
        assert f'name="{field}"' in form, name
    reply = admin.act(name, **fields)
    assert reply.status == 200, (name, reply.body[-1500:])
    printed = COMMAND.search(reply.body.decode())
    assert printed, name
    program, *words = shlex.split(unescape(printed[1]))
    assert program == "usher"
    return words


def check_audit(database: str, name: str, fields: dict[str, str], command: list[str]) -> None:
    """The last event says who did what to what, with which values before and after, and when."""
    [(kind, actor, subject, printed, before, after, reason, is_recent)] = rows(
        database,
        "select kind, actor, subject, command, before, after, reason, at > now() - interval '1 minute' "
        "from work.event where actor is not null order by id desc limit 1",
    )
    assert bool(before) == (name not in WITHOUT_VALUE_BEFORE), name
    assert (kind, actor) == (f"console_{name.replace('-', '_')}", "token admin-person")
    assert subject == next(iter(fields.values()))
    assert shlex.split(printed) == ["usher", *command]
    assert after
    assert reason == fields.get("because", fields.get("reason", ""))
    assert is_recent


def test_a_refused_action_changes_nothing(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server:
        admin = signed_in(server, database, "admin")
        for name, fields, status in (
            ("host-pause", {"host": "unknown.example"}, 404),
            ("host-pause", {"host": ""}, 422),
            ("host-pause", {}, 422),
            ("host-pause", {"host": HOST, "more": "x"}, 422),
            ("host-delay", {"host": HOST, "seconds": "nan"}, 404),
            ("host-recrawl", {"host": HOST, "pages": "some"}, 422),
            ("job-retry", {"job": "7"}, 404),
            ("job-retry", {"job": "x"}, 422),
            ("job-cancel", {"job": "9" * 30}, 422),
            ("token-revoke", {"token": "unknown"}, 404),
            ("page-recrawl", {"url": "javascript:alert(1)"}, 422),
            ("removal-undo", {"target": PAGE}, 404),
            ("type-resume", {"type": "fetch"}, 409),
            ("unknown", {}, 404),
        ):
            reply = admin.act(name, **fields)
            assert reply.status == status, (name, fields, reply.body[-800:])
        assert rows(database, "select count(*) from work.event where actor is not null") == [(0,)]


def test_a_preview_states_what_filters_would_reject(database: str, tmp_path: Path) -> None:
    """The numbers are those of the door, which then refuses exactly these pages."""
    filters = '[{"name": "cal", "rule": "path", "matches": "^/cal/"}]'
    urls = [f"https://a.example/{'cal' if number % 3 else 'page'}/{number}" for number in range(90)]
    with mgmt(database, tmp_path / "log") as server:
        assert server.knock(*urls).status == 200
        run(database, "update work.guestbook set state = 'crawled' where id % 2 = 0")
        waiting = rows(
            database,
            "select count(*) from work.guestbook where path ~ '^/cal/' and state = 'pending'",
        )[0][0]
        admin = signed_in(server, database, "admin")
        fields = {"host": HOST, "filters": filters}
        reply = admin.post("/actions/host-filters/preview", csrf=admin.csrf(), **fields)
        words = f"These filters would reject 60 of 90 known pages, {waiting} of them waiting."
        assert words in reply.body.decode()
        assert "/cal/1 (cal: " in unescape(reply.body.decode())
        assert rows(database, "select filters from work.hosts where name = 'a.example'") == [([],)]
        assert rows(database, "select count(*) from work.event where actor is not null") == [(0,)]
        command = ("hosts", "preview", HOST, "--filter", filters[1:-1])
        printed = usher(*command, environment={"DATABASE_URL": database})
        assert words in printed.out
        assert admin.act("host-filters", **fields).status == 200
        answers = server.knock(*urls).json["reasons"]
        assert answers["filtered"] == 60
        # With the filters in force, the same list rejects nothing more, and none lets 60 pages pass.
        empty = admin.post(
            "/actions/host-filters/preview", csrf=admin.csrf(), host=HOST, filters="[]"
        )
        assert "reject 0 of 90 known pages" in empty.body.decode()
        assert "60 that the present filters reject would pass" in empty.body.decode()
        form = admin.page(f"/actions/host-filters?host={HOST}")
        assert "^/cal/" in form
        for wrong in (
            "x",
            "{}",
            '[{"name": "a", "rule": "unknown"}]',
            '[{"name": "a", "rule": "path", "matches": "(a+)+$"}]',
        ):
            reply = admin.post(
                "/actions/host-filters/preview", csrf=admin.csrf(), host=HOST, filters=wrong
            )
            assert reply.status == 422, wrong
        assert admin.post("/actions/host-pause/preview", csrf=admin.csrf(), host=HOST).status == 404


def test_an_action_on_all_that_match_states_and_keeps_the_number(
    database: str, tmp_path: Path
) -> None:
    with mgmt(database, tmp_path / "log") as server:
        urls = [f"https://a.example/{number:03}" for number in range(40)]
        assert server.knock(*urls, "https://b.example/").status == 200
        run(database, "update work.guestbook set state = 'error', status = 503, failures = 1")
        admin = signed_in(server, database, "admin")
        assert "/actions/pages-recrawl?host=a.example&amp;state=error" in admin.page(
            "/pages?host=a.example&state=error"
        )
        form = admin.page("/actions/pages-recrawl?host=a.example&state=error")
        assert "40 pages match now" in form
        assert 'name="limit" value="40"' in form
        assert "usher pages recrawl --host a.example --state error --limit 40 --yes" in form
        run(database, "update work.guestbook set state = 'crawled' where path < '/010'")
        fields = {"host": HOST, "state": "error", "limit": "25"}
        assert (
            "25 admitted, 0 waited already, 0 refused"
            in admin.act("pages-recrawl", **fields).body.decode()
        )
        states = rows(
            database, "select state, count(*) from work.guestbook group by state order by state"
        )
        assert states == [("crawled", 11), ("error", 5), ("pending", 25)]
        assert admin.act("pages-recrawl", limit="5").status == 422  # no condition
        assert admin.act("pages-recrawl", host=HOST, limit="0").status == 422
