"""Pages of the console and their JSON twins: the same data, filters, next rows, input field, path of a URL."""

import json
import re
import shlex
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.console.filled_stack import HOST, PAGE, fill, run
from support.console.signed_in import FormClient, signed_in
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.processes.commands import usher

COMMAND = re.compile(r"The same at the command line: <code>(.*?)</code>")
DETAILS = ("/hosts/a.example", "/jobs/1", "/components/10.0.0.9:8441", "/chunks/1")
LISTS = (
    "/pages", "/pages/errors", "/pages/refused", "/crawls", "/hosts", "/jobs", "/tasks", "/components", "/chunks",
    "/removals", "/events", "/tokens", "/settings", "/types", "/searches",
)  # fmt: skip
BAD_QUERIES = (
    "/pages?state=unknown", "/pages?older=soon", "/pages?after=javascript:x", "/hosts?policy=x", "/jobs?state=x",
    "/jobs?show=log&after=x", "/jobs?after=x", "/chunks?stage=x", "/chunks?after=-1", "/components?type=x", "/explain",
    "/find", "/pages?status=99", "/pages?due=soon", "/events?show=x", "/events?newer=soon", "/tokens?scope=x",
    "/components?state=x", "/searches?since=x", "/hosts?cadence=x", "/jobs?task=x", "/jobs?since=soon", "/tasks?task=x",
)  # fmt: skip


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    with mgmt(database, tmp_path / "log") as running:
        fill(database, running)
        yield running


@pytest.fixture
def admin(running: Mgmt, database: str) -> FormClient:
    return signed_in(running, database, "admin")


def test_every_page_has_a_twin(admin: FormClient, running: Mgmt) -> None:
    for path in (*LISTS, *DETAILS):
        assert "<h1>" in admin.page(path)
        data = running.get(f"{path}.json")
        assert data.status == 200, (path, data.body)
        assert data.json, path
        if path in LISTS:
            assert isinstance(data.json["records"], list), path
    for path in BAD_QUERIES:
        assert admin.get(path).status == 422, path
        if path == "/find":
            continue
        assert (
            running.get(path.replace("?", ".json?") if "?" in path else f"{path}.json").status
            == 422
        )
    for path in ("/hosts/none.example", "/jobs/999", "/chunks/999", "/components/x:1"):
        assert admin.get(path).status == 404, path


def test_the_first_screen_has_the_data_of_the_status(
    admin: FormClient, database: str, running: Mgmt
) -> None:
    printed = usher(
        "status", "--json", environment={"DATABASE_URL": database, "USHER_DATA": str(running.data)}
    )
    data, body = running.get("/status.json").json, admin.page("/")
    own = json.loads(printed.out)
    assert data.keys() == own.keys()
    assert data["holdups"] == own["holdups"]
    assert data["work"]["pages"]["waiting"] == own["work"]["pages"]["waiting"] == 2
    for problem in own["holdups"]:
        assert problem["words"] in body
    assert 'id="live"' in body
    assert 'http-equiv="refresh"' not in body  # a reload cannot be paused


def test_the_first_screen_names_busy_hosts_and_top_queries(
    admin: FormClient, database: str, running: Mgmt
) -> None:
    """Only the scope admin sees what users searched for."""
    run(
        database,
        "update work.guestbook set state = 'crawled', chunk_id = 1, last_fetched = now()",
        "insert into work.query_stat (at, term, seconds) select now(), 'blue lamp', 0.25 from generate_series(1, 7)",
        "insert into work.query_stat (at, term, seconds) values (now() - interval '2 hours', 'old lamp', 1)",
        "insert into work.query_stat (at, term, seconds, results) "
        "values (now(), 'grue lamp', 1, 0), (now(), 'red', 1, 4)",
    )
    body = admin.page("/")
    busiest = body.partition("Busiest hosts")[2].partition("</section>")[0]
    assert "/hosts/a.example" in busiest
    assert ">2<" in busiest
    terms = body.partition("Top queries")[2].partition("</section>")[0]
    assert "blue lamp" in terms
    assert ">7<" in terms
    assert "0.250 s" in terms
    assert "old lamp" not in body
    empty = terms.partition("Without results")[2]
    assert "grue lamp" in empty
    assert "red" not in empty
    assert "blue lamp" not in empty
    printed = usher("stats", "queries", "--no-results", environment={"DATABASE_URL": database})
    assert "grue lamp" in printed.out
    assert "blue lamp" not in printed.out
    assert "blue lamp" not in signed_in(running, database, "read").page("/")


def test_lists_are_filtered_and_continue(admin: FormClient, running: Mgmt, database: str) -> None:
    urls = [f"https://b.example/{number:03}" for number in range(120)]
    assert running.knock(*urls).status == 200
    path, seen = "/pages.json?host=b.example&state=pending", []
    while path:
        data = running.get(path).json
        seen += [page["url"] for page in data["records"]]
        path = data["next"] and data["next"].replace("/pages?", "/pages.json?")
    assert seen == urls
    assert 'rel="next"' in admin.page("/pages?host=b.example")
    assert "https://b.example/000" not in admin.page("/pages?state=error")
    run(
        database,
        "update work.guestbook set state = 'error', status = 503, failures = 1 where path = '/007'",
    )
    [only] = running.get("/pages.json?state=error").json["records"]
    assert only["url"] == "https://b.example/007"
    assert [kind["kind"] for kind in running.get("/pages/errors.json").json["records"]] == [
        "HTTP 503"
    ]
    assert [host["name"] for host in running.get("/hosts.json?contains=B.EX").json["records"]] == [
        "b.example"
    ]


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        (PAGE, f"/explain?url={quote(PAGE, safe='')}"),
        (HOST, f"/hosts/{HOST}"),
        ("A.Example", f"/hosts/{HOST}"),
        ("unknown.example", "/explain?url=unknown.example"),
        ("a.example/page", "/explain?url=a.example%2Fpage"),
        ("1", "/jobs/1"),
    ],
)
def test_the_input_field_finds(admin: FormClient, typed: str, place: str) -> None:
    reply = admin.get(f"/find?q={quote(typed, safe='')}")
    assert (reply.status, reply.headers["location"]) == (303, place)


def test_a_number_opens_a_job_or_a_chunk(admin: FormClient, database: str) -> None:
    run(database, "delete from control.job")
    assert admin.get("/find?q=1").headers["location"] == "/chunks/1"
    assert admin.get("/find?q=77").status == 404


def steps(running: Mgmt, url: str) -> dict[str, str]:
    data = running.get(f"/explain.json?url={quote(url, safe='')}").json
    return {step["name"]: step["state"] for step in data["steps"]}


def test_the_path_shows_where_a_page_stopped(running: Mgmt, database: str) -> None:
    order = ("door", "queue", "fetch", "build", "load", "search")

    def stopped_at(url: str) -> str:
        states = steps(running, url)
        assert tuple(states) == order
        last = next(name for name, state in states.items() if state in ("stopped", "active"))
        before = [states[name] for name in order[: order.index(last)]]
        after = [states[name] for name in order[order.index(last) + 1 :]]
        assert set(before) <= {"done"}
        assert set(after) <= {"later"}
        return last

    assert stopped_at("javascript:x") == "door"
    assert stopped_at("https://never.example/") == "door"
    assert stopped_at("https://a.example/gone") == "door"  # removed
    assert stopped_at(PAGE) == "queue"
    error = (
        "update work.guestbook set state = 'error', status = 500, failures = 1 where path = '/page'"
    )
    run(database, error)
    assert stopped_at(PAGE) == "fetch"
    indexed = (
        "update work.guestbook set state = 'crawled', status = 200, chunk_id = 1, indexed_in = 1, text64 = 5 "
        "where path = '/page'"
    )
    run(database, indexed)
    assert stopped_at(PAGE) == "build"  # its chunk is parked
    run(database, "update work.chunk set index_state = 'built', built_at = now() where id = 1")
    assert stopped_at(PAGE) == "load"
    run(
        database,
        'insert into work.placement (chunk_id, "row", component_id, state, since) '
        "select 1, 1, id, 'loaded', now() from work.component",
    )
    assert set(steps(running, PAGE).values()) == {"done"}


def test_printed_commands_work(admin: FormClient, database: str) -> None:
    """The command at the end of each page is one that `usher` accepts."""
    queries = (
        "/pages?host=a.example&state=pending&result=unfetched&reason=x&older=1s&newer=7d",
        "/pages/errors?host=a.example", "/pages/refused?host=a.example&reason=filtered",
        "/hosts?contains=a&policy=open&due=yes", "/jobs?state=pending&type=fetch&resource=site&contains=x",
        "/jobs?show=log&state=completed&type=fetch&resource=site&contains=x", "/components?type=crawler&health=healthy",
        "/chunks?stage=failed", "/tasks?state=enabled&type=x&resource=site&contains=y",
        "/pages?host=a.example&path=a%20b&status=404&due=7d", "/pages/refused?contains=x", "/chunks?reason=corrupt",
        "/components?state=online&contains=10", "/hosts?cadence=weekly&reason=x", "/tokens?contains=leak&scope=read",
        "/settings?contains=url", "/removals?contains=old&undone=also", "/tasks?task=1",
        "/events?show=actions&kind=host&of=a&by=x&contains=y&newer=1h", "/jobs?task=1&host=vm&since=1d",
        "/searches?since=7d&results=none",
        "/crawls?state=running&contains=a", "/", f"/explain?url={PAGE}",
    )  # fmt: skip
    for path in (*LISTS, *DETAILS, *queries):
        command = COMMAND.search(admin.page(path))
        assert command, path
        program, *words = shlex.split(unescape(command[1]))
        assert program == "usher"
        ran = usher(*words, environment={"DATABASE_URL": database})
        assert ran.code in (0, 3), (path, words, ran.err)


def test_the_log_shows_recent_lines_to_admin(
    admin: FormClient, running: Mgmt, database: str
) -> None:
    assert admin.act("host-pause", host=HOST, reason="slow").status == 200
    lines = running.get("/log.json?contains=host-pause").json["records"]
    assert (lines[0]["area"], lines[0]["event"]) == ("console", "action")
    assert lines[0]["fields"] == {"name": "host-pause", "subject": HOST}
    assert "host-pause" in admin.page("/log?area=console")
    assert running.get("/log.json?level=error").json["records"] == []
    assert admin.get("/log?level=loud").status == 422
    assert signed_in(running, database, "read").get("/log").status == 403


def test_refused_urls_are_listed_by_reason_and_host(
    admin: FormClient, running: Mgmt, database: str
) -> None:
    run(
        database,
        "insert into work.refused_url (reason, host, url, detail, at) "
        "select r.reason, 'h' || n || '.example', 'https://h' || n || '.example/a b', 'cal', now() "
        "from (values ('filtered'), ('removed')) r (reason), generate_series(10, 49) n",
    )
    path, seen = "/pages/refused.json", []
    while path:
        data = running.get(path).json
        seen += [(each["reason"], each["host"]) for each in data["records"]]
        path = data["next"] and data["next"].replace("refused?", "refused.json?")
    assert seen == sorted(seen)
    assert len(set(seen)) == 80
    assert "h10.example" in admin.page("/pages/refused?reason=filtered&host=h10.example")
    [only] = running.get("/pages/refused.json?reason=removed&host=h11.example").json["records"]
    assert only["detail"] == "cal"
    assert admin.get("/pages/refused?reason=unknown").status == 422


def records(running: Mgmt, path: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = running.get(path).json["records"]
    return listed


def test_each_column_has_a_filter(admin: FormClient, running: Mgmt, database: str) -> None:
    """Each condition keeps what matches it, and only that."""
    run(
        database,
        "update work.guestbook set state = 'crawled', status = 404, next_fetch = now() + '3 days' where path = '/page'",
        "update work.hosts set cadence = '36 hours', policy = 'paused', policy_reason = 'They Move'",
        "insert into work.refused_url (reason, host, url, detail, at) "
        "values ('filtered', 'h.example', 'https://h.example/Cal', 'cal: x', now())",
        "update work.component set health = 'failure', health_reason = 'No answer'",
        "update control.job set hostname = 'vm', task_id = 1 where id = 1",
    )
    assert admin.act("host-open", host=HOST).status == 200
    run(database, "update work.hosts set policy = 'paused', policy_reason = 'They Move'")
    for path, others in (
        ("/pages?path=/pa", ("/pages?path=zz",)),
        ("/pages?status=404", ("/pages?status=500",)),
        ("/pages?host=a.example&due=4d&path=page", ("/pages?due=2d&path=page",)),
        ("/hosts?cadence=36h", ("/hosts?cadence=weekly",)),
        ("/hosts?reason=they%20move", ("/hosts?reason=slow",)),
        ("/jobs?task=1", ("/jobs?task=2",)),
        ("/jobs?host=vm", ("/jobs?host=other",)),
        ("/jobs?since=1h", ()),
        ("/tasks?task=2", ("/tasks?task=99",)),
        ("/components?state=online&contains=no%20ANSWER", ("/components?state=paused", "/components?contains=zz")),
        ("/chunks?reason=CORR", ("/chunks?reason=zz",)),
        ("/tokens?contains=LEAK&scope=read", ("/tokens?contains=zz", "/tokens?scope=work")),
        ("/removals?contains=OLD", ("/removals?contains=zz",)),
        ("/pages/refused?contains=/cal", ("/pages/refused?contains=zz",)),
        ("/settings?contains=pool_size", ("/settings?contains=zzz",)),
        ("/events?show=actions&kind=host%20open&of=A.EXAMPLE&by=admin-person&contains=paused&newer=1h",
         ("/events?kind=zz", "/events?of=zz", "/events?by=zz", "/events?contains=zz", "/events?newer=0s")),
    ):  # fmt: skip
        assert len(records(running, path.replace("?", ".json?"))) == 1, path
        for other in others:
            assert records(running, other.replace("?", ".json?")) == [], other


def test_the_events_continue_after_those_that_do_not_match(
    running: Mgmt, database: str, admin: FormClient
) -> None:
    """A list reads a bounded number of events; its link continues, also if none matches yet."""
    run(
        database,
        "insert into work.event (at, kind, subject) select now(), 'old', 'needle' from generate_series(1, 3)",
        "insert into work.event (at, kind) select now(), 'new' from generate_series(1, 10100)",
    )
    first = running.get("/events.json?of=needle").json
    assert first["records"] == []
    assert "the search continues below" in admin.page("/events?of=needle")
    later = running.get(first["next"].replace("?", ".json?")).json
    assert [each["subject"] for each in later["records"]] == ["needle"] * 3
    assert later["next"] is None


def test_tokens_continue(running: Mgmt, database: str) -> None:
    run(
        database,
        "insert into work.token (name, hash, scope, created_at) "
        "select 't' || n, sha256(n::text::bytea), 'read', now() from generate_series(100, 220) n",
    )
    path, seen = "/tokens.json?contains=t", []
    while path:
        data = running.get(path).json
        seen += [each["name"] for each in data["records"]]
        path = data["next"] and data["next"].replace("?", ".json?")
    assert seen == [f"t{number}" for number in range(100, 221)]


def test_pages_are_grouped_by_reason(admin: FormClient, running: Mgmt, database: str) -> None:
    urls = [f"https://{host}.example/{number}" for host in ("b", "c") for number in range(4)]
    assert running.knock(*urls, "https://d.example/1").status == 200
    run(
        database,
        "update work.guestbook set state = 'error', status = 503, failures = 1 where path ~ '^/[0-9]'",
        "update work.guestbook set state = 'crawled', status = 404, reason = 'HTTP 404', gone = true, "
        "last_fetched = now() where path = '/page'",
        "insert into work.refused_url (reason, host, url, detail, at) "
        "select 'filtered', 'h' || n || '.example', 'https://h.example/' || n, '', now() from generate_series(1, 3) n",
    )
    body = admin.page("/pages/errors")
    assert "9 pages on 3 hosts" in body
    assert "3 URLs on 3 hosts" in body
    assert 'href="/pages?result=gone"' in body
    assert "4 pages on 1 host" in admin.page("/pages/errors?host=b.example")
    data = running.get("/pages/errors.json").json
    assert [(each["reason"], each["urls"], each["hosts"]) for each in data["refused"]] == [
        ("filtered", 3, 3)
    ]
    assert [each["hosts"] for each in data["records"]] == [3]


def test_a_job_shows_its_tree_and_attempts(admin: FormClient, running: Mgmt, database: str) -> None:
    run(
        database,
        "insert into control.job (id, type, program, args) overriding system value "
        "values (20, 'child', 'c', '{secret-arg}'), (30, 'grandchild', 'g', '{}')",
        "insert into control.job_hierarchy (job_id, parent_job_id) values (20, 1), (30, 20)",
        "insert into control.job_log "
        '(id, type, program, args, state, message, host_rule, start, "end", attempts, exit_code) '
        "values (20, 'child', 'c', '{}', 'temporary-error', 'again', '', now() - interval '5 minutes', now(), 1, 75)",
    )
    body = admin.page("/jobs/20")
    tree = body.partition('id="tree"')[2].partition("</table>")[0]
    assert [tree.index(f'href="/jobs/{job}"') for job in (1, 20, 30)] == sorted(
        tree.index(f'href="/jobs/{job}"') for job in (1, 20, 30)
    )
    for relation in ("parent", "this job", "child"):
        assert f">{relation}<" in re.sub(r"\s+", "", tree).replace("thisjob", "this job")
    attempts = body.partition("Attempts</h2>")[2]
    assert "5 minutes" in attempts
    assert "75" in attempts
    data = running.get("/jobs/20.json").json
    assert [(node["id"], node["depth"]) for node in data["tree"]] == [(1, -1), (20, 0), (30, 1)]
    reader = signed_in(running, database, "read")
    assert "secret-arg" not in reader.page("/jobs/20") + reader.page("/jobs/20.json")


def test_types_show_their_jobs_and_pauses(admin: FormClient, running: Mgmt) -> None:
    assert admin.act("type-pause", type="fetch", reason="down").status == 200
    [only] = records(running, "/types.json")
    assert (only["type"], only["jobs"]) == ("fetch", {"pending": 1})
    assert only["paused"]["reason"] == "down"
    assert "/actions/type-resume?type=fetch" in admin.page("/types")


def test_the_link_to_the_data_keeps_the_conditions(admin: FormClient) -> None:
    assert 'href="/pages.json?state=error&amp;host=a.example"' in admin.page(
        "/pages?state=error&host=a.example"
    )
    assert 'href="/status.json"' in admin.page("/")
