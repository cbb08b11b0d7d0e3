"""The queue looked at: lists, one job, its kin, and why it waits."""

from datetime import datetime
from typing import Any

import pytest

from support.queue.queued_jobs import HOUR, NOW, SECOND, add_task, end, finished, new, put, started
from usher.db.pool import Connection
from usher.errors import NotFound
from usher.queue import admin, jobs, queries, waiting_reason
from usher.queue.job_states import JobState

# -- lists


async def test_the_queue_is_listed_newest_first_and_page_by_page(conn: Connection) -> None:
    ids = await put(conn, *[new(args=(str(number),)) for number in range(5)])
    first = await queries.list_jobs(conn, n=2)
    assert [job.id for job in first] == ids[:2:-1]
    rest = await queries.list_jobs(conn, n=10, after_id=first[-1].id)
    assert [job.id for job in rest] == ids[2::-1]


async def test_only_some_are_listed(conn: Connection) -> None:
    task = await add_task(conn)
    plain, other, held = await put(
        conn, new(), new("other", "prog", args=("needle",), key="k"), new(resource="disk")
    )
    run = (await admin.run_task(conn, task, now=NOW)).id
    [claimed] = await started(conn, "other")

    async def listed(**wanted: Any) -> list[int]:  # noqa: ANN401 - as list_jobs has them
        return sorted(job.id for job in await queries.list_jobs(conn, **wanted))

    assert await listed(type="other") == [other]
    assert await listed(states=["running"]) == await listed(host="here") == [claimed.id]
    assert await listed(states=["pending"], type="t") == [plain, held, run]
    assert await listed(task=task) == [run]
    assert await listed(resource="disk") == [held]
    assert await listed(resource="unknown") == []
    assert await listed(contains="needle") == await listed(contains="k") == [other]
    assert await listed(since=NOW + SECOND) == []


async def test_the_log_is_listed_by_end_and_gives_each_job_once(conn: Connection) -> None:
    ids = await put(conn, *[new() for _ in range(4)])
    runs = await started(conn)
    await end(conn, runs[:1], JobState.TEMPORARY_ERROR)
    for number, run in enumerate(runs[1:]):  # the second ends last
        await end(conn, [run], JobState.COMPLETED, now=NOW + (3 - number) * SECOND)
    found = await queries.list_jobs(conn, log=True)
    assert [job.id for job in found] == [ids[1], ids[2], ids[3]]
    page = await queries.list_jobs(conn, log=True, n=1, after_id=ids[1])
    assert [job.id for job in page] == [ids[2]]
    assert await queries.list_jobs(conn, log=True, since=NOW + 4 * SECOND) == []
    failed = await queries.list_jobs(conn, log=True, states=["temporary-error"])
    assert [job.id for job in failed] == [ids[0]]
    with pytest.raises(NotFound):
        await queries.list_jobs(conn, log=True, after_id=10**12)


async def test_attempts_are_paged_without_a_gap(conn: Connection) -> None:
    [id_] = await put(conn, new())
    for number in range(3):
        now = NOW + number * 2 * HOUR
        await admin.retry_jobs(conn, [id_], now=now)
        await end(conn, await started(conn, now=now), JobState.TEMPORARY_ERROR, now=now)
    wanted: dict[str, Any] = {"log": True, "states": ["temporary-error"], "n": 1}
    seen: list[int] = []
    after: dict[str, Any] = {}
    while page := await queries.list_jobs(conn, **wanted, **after):
        seen.append(page[0].attempts)
        after = {"after_id": page[0].id, "after_end": page[0].end}
    assert seen == [3, 2, 1]


async def test_lists_of_many_do_not_read_all(conn: Connection) -> None:
    await conn.execute(
        "insert into control.job (type, program, host_rule) select 't', 'true', '' from generate_series(1, 20000)"
    )
    await conn.execute(
        'insert into control.job_log (id, type, program, state, "end", host_rule) '
        "select n, 't', 'true', 'completed', now() - n * interval '1 second', '' from generate_series(1, 20000) n"
    )
    await conn.execute("analyze control.job, control.job_log, control.resource")
    nothing = dict.fromkeys(queries.JobFilter.__annotations__)
    lists = ((queries.store.list_jobs, None), (queries.store.list_log, ["completed"]))
    for statement, states in lists:
        given = {**nothing, "states": states, "n": 100}
        plan_ = await conn.execute(b"explain " + statement.query, given)
        lines = "\n".join(line for (line,) in await plan_.fetchall())
        assert "Index Scan" in lines
        assert "Seq Scan on job" not in lines.replace("Seq Scan on job_log_default", "")


# -- one job


async def test_a_job_is_shown_with_its_attempts_kin_and_works(conn: Connection) -> None:
    [parent] = await put(conn, new("p"))
    [id_] = await put(conn, new(data="d"), parent=parent)
    await end(conn, await started(conn), JobState.TEMPORARY_ERROR, output="first", exit_code=1)
    await admin.retry_jobs(conn, [id_], now=NOW)
    live = await queries.show_job(conn, id_)
    assert (live.live, live.job.state, live.job.data, live.parent) == (True, "pending", "d", parent)
    later = NOW + SECOND
    runs = await started(conn, now=later)
    await put(conn, new("c"), new("c"), parent=id_)
    await conn.execute(
        "insert into control.job_table_item (job_id, table_name, table_row_id) values (%s, 'item', '7')",
        [id_],
    )
    await end(conn, runs, JobState.COMPLETED, output="second", exit_code=0, now=later)
    over = await queries.show_job(conn, id_)
    assert (over.live, over.job.state, over.job.output) == (False, "completed", "second")
    assert [(one.attempts, one.state) for one in over.attempts] == [
        (1, "temporary-error"), (2, "completed"),
    ]  # fmt: skip
    assert (over.children, [(row.table, row.row_id) for row in over.wrote]) == (2, [("item", "7")])
    assert (await queries.show_job(conn, id_, attempt=1)).job.output == "first"
    for missing in ({"attempt": 3}, {"id_": 10**12}):
        with pytest.raises(NotFound):
            await queries.show_job(conn, **{"id_": id_, **missing})
    [maker] = await queries.row_writers(conn, "item", "7")
    assert (maker.id, maker.state) == (id_, "completed")
    assert await queries.row_writers(conn, "item", "8") == []


async def test_counts(conn: Connection) -> None:
    await finished(conn, new(), new())
    await put(conn, new(), new("u"), new("u"))
    [failing] = await started(conn, "u", 1)
    await started(conn, "u", 1)
    await end(conn, [failing], JobState.TEMPORARY_ERROR)
    found = await queries.count_jobs(conn, now=NOW)
    assert [(one.type, one.state, one.number, one.more) for one in found.live] == [
        ("t", "pending", 1, False),
        ("u", "running", 1, False),
        ("u", "temporary-error", 1, False),
    ]
    assert [(one.type, one.state, one.number) for one in found.log] == [
        ("t", "completed", 2),
        ("u", "temporary-error", 1),
    ]
    assert (await queries.count_jobs(conn, now=NOW + 30 * HOUR)).log == []


async def test_a_tree_goes_up_to_the_root_and_down(conn: Connection) -> None:
    [root] = await finished(conn, new())
    [middle, aunt] = await put(conn, new(), new(), parent=root)
    [leaf, other] = await put(conn, new(), new(), parent=middle)
    found = await queries.job_tree(conn, middle)
    assert [(node.id, node.depth) for node in found] == [
        (root, -1), (middle, 0), (leaf, 1), (other, 1),
    ]  # fmt: skip
    assert (found[0].state, found[1].parent) == ("completed", root)
    assert aunt not in {node.id for node in found}
    with pytest.raises(NotFound):
        await queries.job_tree(conn, 10**12)


async def test_a_tree_that_bites_its_tail_has_an_end(conn: Connection) -> None:
    await conn.execute(
        "insert into control.job_hierarchy (job_id, parent_job_id) values (501, 502), (502, 501)"
    )
    found = await queries.job_tree(conn, 501)
    assert {node.id for node in found} == {501, 502}
    assert len(found) <= queries.MAX_TREE_JOBS + queries.MAX_TREE_DEPTH


# -- why


async def reasons(conn: Connection, id_: int, now: datetime = NOW, host: str | None = None) -> str:
    return "\n".join(await waiting_reason.waiting_reasons(conn, id_, host=host, now=now))


async def test_why_not_yet(conn: Connection) -> None:
    [later] = await put(conn, new(scheduled=NOW + HOUR))
    assert await reasons(conn, later) == "It is due at 2026-11-16 09:00:00 UTC, in 1h."


async def test_why_its_resource_holds_it_back(conn: Connection) -> None:
    first, second, third = await put(conn, *[new(resource="disk") for _ in range(3)])
    await started(conn, now=NOW)
    told = await reasons(conn, third, NOW + SECOND)
    assert f"disk is busy: 1 of 1 run (job {first} on here)" in told
    assert "Jobs before it at its resource: 1." in told
    await conn.execute("update control.resource set capacity = 2")
    told = await reasons(conn, second, NOW + SECOND)
    assert "pauses for 10s after each start" in told
    assert "in 9s" in told


async def test_why_another_machine_has_to_run_it(conn: Connection) -> None:
    allowed, denied = await put(conn, new(host_rule="allow:a,b"), new("u", host_rule="deny:here"))
    assert "only on a,b" in await reasons(conn, allowed)
    assert "may not run on here: its rule is allow:a,b" in await reasons(conn, allowed, host="here")
    assert "does not run on here" in await reasons(conn, denied)
    assert await reasons(conn, denied, host="a") == "It is the next of its type."


async def test_why_others_go_first(conn: Connection) -> None:
    ids = await put(conn, *[new() for _ in range(4)], new(priority=-1), new(scheduled=NOW + HOUR))
    await put(conn, new(priority=5), new(host_rule="elsewhere", priority=-9))
    assert "4 of type t go before it" not in await reasons(conn, ids[3])
    assert "5 of type t go before it, and 0 run" in await reasons(conn, ids[3])
    assert "4 of type t go before it" in await reasons(conn, ids[3], host="here")
    assert await reasons(conn, ids[4], host="here") == "It is the next of its type."


async def test_why_nobody_takes_it(conn: Connection) -> None:
    [id_] = await put(conn, new())
    told = await reasons(conn, id_, NOW + HOUR)
    assert "No job of type t has started for 1h" in told
    assert "usher manager --type t" in told


async def test_why_of_what_does_not_wait(conn: Connection) -> None:
    [id_] = await put(conn, new())
    [run] = await started(conn)
    assert "It runs on here, since" in await reasons(conn, id_)
    assert "its lease expired" in await reasons(conn, id_, NOW + HOUR)
    await end(conn, [run], JobState.TEMPORARY_ERROR)
    assert f"now with usher jobs retry {id_}" in await reasons(conn, id_)
    assert "does a scheduler run?" in await reasons(conn, id_, NOW + 2 * HOUR)
    await jobs.cancel(conn, [id_], reason="enough", now=NOW)
    assert "It has ended: cancelled" in await reasons(conn, id_)
    with pytest.raises(NotFound):
        await reasons(conn, 10**12)


async def test_a_disabled_task_is_told(conn: Connection) -> None:
    id_ = await add_task(conn, name="nightly")
    job = await admin.run_task(conn, id_, now=NOW)
    await admin.set_task_state(conn, id_, "disabled", now=NOW)
    assert "usher tasks enable nightly" in await reasons(conn, job.id)
