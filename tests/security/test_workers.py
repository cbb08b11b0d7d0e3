"""Jobs against the queue: what a program can do with the database login, the claim and the children it is given."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.db.fixtures import open_directory, wait_stopped
from support.mgmt.mgmt_process import mgmt
from support.processes.commands import usher
from support.processes.killable import eventually
from support.processes.terminal import show
from support.queue.job_attacks import ATTACKS, SETTINGS
from support.queue.job_runs import Queue, Run, manager
from support.site.website import Response, Website
from usher.db.embedded.server_lease import lease_server
from usher.db.pool import connect
from usher.queue.worker_login import worker_dsn
from usher.schema.roles import ROLES

DENIED = psycopg.errors.InsufficientPrivilege
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")


@dataclass(frozen=True, slots=True)
class Place:
    """An embedded server as it is made for users, and a manager that works on it."""

    queue: Queue
    data: Path
    directory: Path
    manager: int


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    home = open_directory()
    data, directory = home / "data", home / "programs"
    directory.mkdir(mode=0o755)
    (directory / "attacks.py").write_text(ATTACKS)
    (directory / "usher.toml").write_text(SETTINGS)
    environment = {"USHER_DATA": str(data), "USHER_CONFIG": str(directory / "usher.toml")}
    with lease_server(data) as lease:
        migrated = usher("db", "migrate", environment=environment)
        assert migrated.code == 0, migrated.err
        with manager(environment, directory) as process:
            queue = Queue(lease.dsn, environment)
            assert queue.run("/bin/true").state == "completed", (
                directory / "manager.log"
            ).read_text()
            yield Place(queue, data, directory, process.pid)
    wait_stopped(data)
    shutil.rmtree(home)


@pytest.mark.attack(
    8,
    "a job says SET ROLE NONE, RESET ROLE or SET SESSION AUTHORIZATION on its own connection",
    "it stays usher_worker: it logged in as that, with a password of its own",
)
def test_no_statement_gives_a_job_another_role(place: Place) -> None:
    answers = place.queue.run("attacks:escape").json
    assert answers[0::2] == [["usher_worker", "usher_worker", "off"]] * (len(answers) // 2)
    assert answers[1::2] == ["InsufficientPrivilege"] * (len(answers) // 2)


@pytest.mark.attack(
    8,
    "a job logs in again over the socket as the superuser or as another role",
    "the server demands that role's password, which the job was not given",
)
def test_the_login_of_a_job_opens_no_other_role(place: Place) -> None:
    others = ["usher", *(role for role in ROLES if role != "usher_worker")]
    user, has_password, entered = place.queue.run("attacks:reconnect", *others).json
    assert (user, has_password, entered) == ("usher_worker", True, [])
    [[_, _, entered]] = [place.queue.run("attacks:reconnect", "usher_worker").json]
    assert entered == [["usher_worker", True]]  # only with the password


@pytest.mark.attack(
    8,
    "a job prunes the log with a time in the far future",
    "it may only prune by the present time; the log is still there",
)
def test_a_job_cannot_choose_how_much_of_the_log_is_deleted(place: Place) -> None:
    before = place.queue.rows("select count(*) from control.job_log")
    assert place.queue.run("attacks:prune").json == ["InsufficientPrivilege", [[0]]]
    assert place.queue.rows("select count(*) from control.job_log") > before


@pytest.mark.attack(
    8,
    "a job reads and writes job_hierarchy, job_table_item and job of other jobs",
    "row security shows its own rows and refuses the others; the password table is closed",
)
def test_a_job_sees_and_writes_its_own_rows_only(place: Place) -> None:
    other = place.queue.add("/bin/sleep", "300", type_="other")
    rows = "insert into control.job_table_item (job_id, table_name, table_row_id) values (%s, 'theirs', '1')"
    place.queue.rows(rows, other)
    place.queue.rows("insert into control.job_hierarchy values (%s, 1)", other)
    try:
        assert place.queue.run("attacks:pry", str(other)).json == [
            [[True]], [["mine"]], [],
            *["InsufficientPrivilege"] * 4,
        ]  # fmt: skip
    finally:
        place.queue.rows("select control.cancel(array[%s::bigint], 'test', now())", other)


@pytest.mark.attack(
    8,
    "a job connects without its claim, or with a claim of its own making",
    "it sees no row and can insert nothing",
)
def test_the_login_without_a_claim_is_worth_nothing(place: Place) -> None:
    sees_nothing = [[[0]], [[0]], [[0]], *["InsufficientPrivilege"] * 5]
    assert place.queue.run("attacks:without_claim").json == [sees_nothing] * 3


@pytest.mark.attack(
    8,
    "the scheduler's role inserts a job that runs already, or one with attempts, a claim or a machine",
    "the database refuses: what a scheduler inserts is pending",
)
async def test_a_scheduler_cannot_insert_a_running_job(database: str) -> None:
    claim, lease = "gen_random_uuid()", "now() + interval '1 hour'"
    running = (
        f"(type, program, state, claim, lease_until) values ('t', 'p', 'running', {claim}, {lease})"
    )
    others = {
        "state": "'completed'", "attempts": "7", "hostname": "'here'", "process_id": "1", "output": "'x'",
        "exit_code": "0", "unique_key": "'k'", "claim": claim, "lease_until": lease,
    }  # fmt: skip
    inserts = [
        running,
        *(f"(type, program, {name}) values ('t', 'p', {value})" for name, value in others.items()),
    ]
    async with await connect(make_conninfo(database, user="usher_scheduler")) as conn:
        for rest in inserts:
            with pytest.raises(DENIED):
                await conn.execute(f"insert into control.job {rest}".encode())
        await conn.execute("insert into control.job (type, program) values ('t', 'p')")
        for change in ("state = 'completed'", "state = 'temporary-error'"):
            changed = await conn.execute(f"update control.job set {change}".encode())
            assert changed.rowcount == 0  # only what failed for now, and only to pending
    async with await connect(database) as admin:
        await admin.execute("grant insert on control.job to usher_scheduler")
    async with await connect(make_conninfo(database, user="usher_scheduler")) as conn:
        with pytest.raises(DENIED, match="row-level security"):
            await conn.execute(f"insert into control.job {running}".encode())


@pytest.mark.attack(
    8,
    "a login that may only read calls a function that claims pages",
    "PUBLIC may call no function of the four schemas",
)
async def test_a_reader_cannot_call_functions_that_write(database: str) -> None:
    async with await connect(make_conninfo(database, user="usher_reader")) as conn:
        with pytest.raises(DENIED, match="claim_links"):
            await conn.execute(
                "select * from work.claim_links('{}', '{}', '{}', '{}', 1, '{}', '{}', '{}', now())"
            )
        found = await conn.execute(
            """
            select p.oid::regprocedure::text from pg_proc p
            where p.pronamespace::regnamespace::text in ('work', 'mgmt', 'control', 'feeds', 'multimatch')
                and has_function_privilege('public', p.oid, 'execute')
            """
        )
        assert await found.fetchall() == []


@pytest.mark.attack(
    8,
    "the operator's worker_url logs in as a superuser, or the server asks usher_worker for no password",
    "the manager refuses the address; jobs get no database URL and the log says why",
)
async def test_jobs_get_a_real_login_or_none(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = place.queue.dsn
    with pytest.raises(Exception, match="logs in as usher"):
        await worker_dsn(dsn, worker_url=dsn)
    assert "usher_worker" in await worker_dsn(dsn)
    rules = place.data / "postgres" / "pg_hba.conf"
    strict = rules.read_text()
    try:
        rules.write_text(f"local all usher_worker trust\n{strict}")
        place.queue.rows("select pg_reload_conf()")
        assert await eventually_async(dsn, "")
    finally:
        rules.write_text(strict)
        place.queue.rows("select pg_reload_conf()")
    assert "jobs_without_database" in caplog.messages


async def eventually_async(dsn: str, wanted: str) -> bool:
    """Whether the answer becomes this one: the server reads its rules again a moment after it is told."""
    for _ in range(200):
        if await worker_dsn(dsn) == wanted:
            return True
    return False


@pytest.mark.attack(
    2,
    "a job starts /bin/sh as a further job, by job().enqueue and by a plain insert",
    "the manager ends it as permanent-error; it never starts, and a retry does not start it either",
)
def test_a_job_cannot_start_a_shell(place: Place, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    children = place.queue.run("attacks:start", "/bin/sh", "-c", f"touch {proof}").json
    assert len(children) == 2
    for child in children:
        run = place.queue.ended(child)
        assert run.state == "permanent-error"
        assert "may not start the program '/bin/sh'" in str(run.message)
    [(again,)] = place.queue.rows(
        "insert into control.job (type, program, args) select type, program, args from control.job_log "
        "where id = %s returning id",
        children[0],
    )
    place.queue.ended(again)  # what the operator puts in himself may run
    assert proof.exists()
    proof.unlink()
    assert retried(place, children[1]).state == "permanent-error"
    assert not proof.exists()


def retried(place: Place, job: int) -> Run:
    ran = usher("jobs", "retry", str(job), environment=dict(place.queue.environment))
    assert ran.code == 0, ran.err
    [(again,)] = place.queue.rows(
        "select job_id from control.job_hierarchy where parent_job_id = %s", job
    )
    return place.queue.ended(again)


@pytest.mark.attack(
    2,
    "a job starts what its module has imported, as module:os.system or module:subprocess.run",
    "only functions that the module defines may run",
)
@pytest.mark.parametrize("program", ["attacks:os.system", "attacks:subprocess.run"])
def test_a_job_cannot_start_what_its_module_imported(
    place: Place, tmp_path: Path, program: str
) -> None:
    proof = tmp_path / "proof"
    for child in place.queue.run("attacks:start", program, f"touch {proof}").json:
        run = place.queue.ended(child)
        assert run.state == "permanent-error"
        assert "neither defines" in str(run.message)
    assert not proof.exists()
    for child in place.queue.run("attacks:start", "attacks:mark", str(proof)).json:
        assert place.queue.ended(child).state == "completed"
    assert proof.exists()


@pytest.mark.attack(
    2,
    "a job leaves the directory that child_programs names by a path with ..",
    "a wildcard crosses no slash, so that the program is not allowed",
)
@pytest.mark.parametrize(
    ("program", "state"),
    [
        ("/srv/workers/../../bin/true.sh", "permanent-error"),
        ("/srv/workers/below/x.sh", "permanent-error"),
        ("attacks:start", "permanent-error"),
        ("attacks:nothing", "completed"),
    ],
)
def test_child_programs_name_what_may_run(place: Place, program: str, state: str) -> None:
    job = place.queue.add("attacks:start", program, type_="listed")
    for child in place.queue.ended(job).json:
        run = place.queue.ended(child)
        assert run.state == state
        assert ("child_programs" in str(run.message)) == (state == "permanent-error")


@pytest.mark.attack(
    2,
    "a job starts /bin/sh by POST /v1/jobs/{id}/jobs",
    "403 at once if MGMT knows the type; else the manager refuses it",
)
def test_a_job_cannot_start_a_shell_over_http(place: Place, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    settings = {"USHER_CONFIG": str(place.directory / "usher.toml")}
    words = ("/bin/sh", "-c", f"touch {proof}")
    with mgmt(place.queue.dsn, tmp_path / "log", settings=settings) as server:
        job = place.queue.add("attacks:ask", server.address, *words, type_="listed")
        status, told = place.queue.ended(job).json
        assert (status, told["code"]) == (403, "child_forbidden")
        status, told = place.queue.run("attacks:ask", server.address, *words).json
        assert status == 200
        child = told["jobs"][0]["id"]
    assert place.queue.ended(child).state == "permanent-error"
    assert not proof.exists()


@pytest.mark.attack(
    1,
    "a job waits in the queue while someone runs usher crawl",
    "usher crawl starts no manager, so that nothing runs it; with --jobs it does",
)
def test_a_crawl_runs_no_jobs_unless_asked(data: Path) -> None:
    with Website({"/": Response(b"<title>One</title>One page.")}) as site:
        with show(data, "crawl", site.url("/")) as crawl:
            assert crawl.ends(120) == 0, crawl.logs
        with lease_server(data) as lease:
            queue = Queue(lease.dsn, {"USHER_DATA": str(data)})
            job = queue.add("/bin/true")
            with show(data, "crawl", "--again", "--then", "serve", site.url("/")) as crawl:
                assert eventually(lambda: "Search page" in crawl.said, 120), crawl.logs
                mgmt_log = (data / "logs" / "mgmt.log").read_text()
                assert "manager" not in mgmt_log
                assert "scheduler" not in mgmt_log
                crawl.ctrl_c()
                crawl.ends()
            assert queue.rows("select state from control.job where id = %s", job) == [("pending",)]
            with show(
                data, "crawl", "--again", "--then", "serve", "--jobs", site.url("/")
            ) as crawl:
                assert queue.ended(job).state == "completed"
                crawl.ctrl_c()
                crawl.ends()


@ROOT_ONLY
@pytest.mark.attack(
    8,
    "a job of a type with a `user` of its own reads the server's password or opens its socket",
    "it runs as that user, who may do neither",
)
def test_a_job_of_another_user_reaches_nothing_of_ours(place: Place) -> None:
    words = (
        f"id -un; cat {place.data}/password; ls {place.data}/run; echo ${{USHER_CONTROL_URL:-none}}"
    )
    run = place.queue.run("/bin/sh", "-c", words, type_="apart")
    assert run.state == "completed"
    lines = str(run.output).splitlines()
    assert lines[0] == "nobody"
    assert lines[-1] == "none"
    assert len([line for line in lines if "Permission denied" in line]) == 2


@pytest.mark.attack(
    8,
    "a job reads the database address from /proc/PID/environ of its manager",
    "the manager is closed to other processes of its user",
)
def test_a_job_cannot_read_the_environment_of_its_manager(data: Path) -> None:
    directory = data.parent / "programs"
    directory.mkdir(mode=0o755)
    (directory / "attacks.py").write_text(ATTACKS)
    with lease_server(data) as lease:
        account = lease.cluster.account
        python = usable_python(account.name) if account.drops else sys.executable
        environment = {"DATABASE_URL": lease.dsn, "USHER_DATA": str(data)}
        assert usher("db", "migrate", environment=environment).code == 0
        packages = os.pathsep.join([str(directory), *filter(None, sys.path)])
        own = {"PYTHONPATH": packages, "HOME": str(directory)}
        user = account.name if account.drops else None
        with manager({**environment, **own}, directory, user=user, python=python) as process:
            run = Queue(lease.dsn, environment).run("attacks:spy", str(process.pid))
    assert run.json == ["PermissionError"] * 3 + ["read"] * 3


def usable_python(user: str) -> str:
    """An interpreter that this user can start and that knows our packages; root's own may be in a closed directory."""
    packages = os.pathsep.join(filter(None, sys.path))
    for python in (sys.executable, "/usr/bin/python3"):
        command = [python, "-c", "import usher.queue.service"]
        with suppress(OSError):
            tried = subprocess.run(
                command, user=user, env={"PYTHONPATH": packages}, check=False, capture_output=True
            )
            if tried.returncode == 0:
                return python
    pytest.skip(f"{user} can run no Python that has our packages")
