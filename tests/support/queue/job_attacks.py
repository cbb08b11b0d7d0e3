"""Programs that attack the queue they run in, and the settings of their types; written to files by tests."""

ATTACKS = '''
import json, os, subprocess, urllib.error, urllib.request
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import psycopg

from usher.worker import job


def url():
    return os.environ["USHER_CONTROL_URL"]


def attempt(conn, query, *given):
    """What the database answers: the rows, or the name of its error."""
    try:
        found = conn.execute(query, given)
        return found.fetchall() if found.description else "done"
    except psycopg.Error as error:
        return type(error).__name__


def connected(**change):
    return psycopg.connect(url(), autocommit=True, **change)


def escape():
    found = []
    for words in (
        "set role none", "reset role", "set session authorization default",
        "reset session authorization", "set role usher", "set role usher_manager",
        "set session authorization usher", "select set_config('role', 'none', false)",
    ):
        with connected() as conn:
            attempt(conn, words)
            found += attempt(conn, "select session_user::text, current_user::text, current_setting('is_superuser')")
            found.append(attempt(conn, "select count(*) from control.task"))
    print(json.dumps(found))


def reconnect(*roles):
    """Log in as each other role, with the job's own password and with none."""
    entered = []
    place = urlsplit(url())
    own = place.password
    options = parse_qs(place.query)
    for role in roles:
        for password in (own, ""):
            try:
                psycopg.connect(
                    host=options["host"][0], port=options["port"][0], dbname=place.path[1:],
                    user=role, password=password,
                ).close()
                entered.append([role, bool(password)])
            except psycopg.OperationalError:
                pass
    print(json.dumps([place.username, bool(own), entered]))


def prune():
    with connected() as conn:
        answers = [attempt(conn, "select control.prune_log('9000-01-01')"), attempt(conn, "select control.prune_log()")]
    print(json.dumps(answers))


INSERT_ITEM = "insert into control.job_table_item (job_id, table_name, table_row_id) values (%s, 'x', 'x')"


def pry(other):
    with connected() as conn:
        job().enqueue("attack", "attacks:nothing")
        job().wrote("mine", "1")
        print(json.dumps([
            attempt(conn, "select distinct %s in (job_id, parent_job_id) from control.job_hierarchy", job().id),
            attempt(conn, "select table_name from control.job_table_item"),
            attempt(conn, "select id from control.job where id = %s", other),
            attempt(conn, INSERT_ITEM, other),
            attempt(conn, "insert into control.job_hierarchy (job_id, parent_job_id) values (1000000, %s)", other),
            attempt(conn, "delete from control.job_hierarchy"),
            attempt(conn, "select * from control.worker_login"),
        ]))


STATEMENTS = (
    "select count(*) from control.job",
    "select count(*) from control.job_hierarchy",
    "select count(*) from control.job_table_item",
    "insert into control.job (type, program) values ('attack', 'attacks:mark')",
    "select control.enqueue('attack', 'attacks:mark')",
    "select control.say('x')",
    "select control.wrote('t', '{1}')",
    "insert into control.job_table_item (job_id, table_name, table_row_id) values (1, 'x', 'x')",
)


def without_claim():
    answers = []
    for options in ("", "-c usher.claim=00000000-0000-0000-0000-000000000000 -c usher.job=" + str(job().id)):
        with connected(options=options) as conn:
            answers.append([attempt(conn, query) for query in STATEMENTS])
    with connected() as conn:
        conn.execute("set usher.claim = ''")
        answers.append([attempt(conn, query) for query in STATEMENTS])
    print(json.dumps(answers))


def nothing():
    pass


def mark(file):
    open(file, "w").close()


def start(program, *args):
    """Put a child in by each way there is; prints the numbers of the children."""
    first = job().enqueue("attack", program, *args)
    with connected() as conn:
        conn.execute(
            "insert into control.job (type, program, args) values ('attack', %s, %s)", [program, list(args)]
        )
        rows = conn.execute("select job_id from control.job_hierarchy where parent_job_id = %s", [job().id]).fetchall()
    assert first in {number for (number,) in rows}
    print(json.dumps([number for (number,) in rows]))


def ask(address, program, *args):
    body = {"claim": os.environ["USHER_CLAIM"], "type": "attack", "program": program, "args": list(args)}
    asked = urllib.request.Request(
        f"{address}/v1/jobs/{job().id}/jobs", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        answer = urllib.request.urlopen(asked)
    except urllib.error.HTTPError as error:
        answer = error
    print(json.dumps([answer.status, json.load(answer)]))


def spy(manager):
    """Read the environment of the manager and, to show that it can be done, of the own parent."""
    answers = []
    for pid in (manager, os.getppid()):
        for file in ("environ", "mem", "maps"):
            try:
                open(f"/proc/{pid}/{file}", "rb").close()
                answers.append("read")
            except OSError as error:
                answers.append(type(error).__name__)
    print(json.dumps(answers))
'''

SETTINGS = """
[worker.listed]
child_programs = ["attacks:n*", "/srv/workers/*.sh"]

[worker.apart]
user = "nobody"
"""
