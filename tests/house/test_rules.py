"""The rules of the project: SQL statements, schema, documentation, file sizes, names."""

import ast
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

import usher
from support.db.fixtures import Server, clone
from usher import domain64, errors
from usher.cli.main import root
from usher.db.areas import SCHEMAS, AreaDatabases
from usher.db.pool import Connection, connect
from usher.db.statements import Statement, Statements
from usher.door import guestbook, hosts
from usher.schema.dump import schema_ddl
from usher.schema.migration_files import migrations
from usher.settings import setting_names
from usher.telemetry import REGISTRY

PACKAGE = Path(usher.__file__).parent
TREE = PACKAGE.parents[1]
STORES = [
    Statements(path) for path in sorted(PACKAGE.rglob("*.sql")) if path.with_suffix(".py").exists()
]
STATEMENTS = [
    pytest.param(store, statement, id=f"{store.file.stem}.{statement.name}")
    for store in STORES
    for statement in store
]
FIRST = domain64.encode(domain64.Parts(3, 1, 1))
NOW = datetime(2026, 11, 16, tzinfo=UTC)
KNOCK = {
    "hosts": f"{{{FIRST}}}", "revisions": "{1}", "places": "{1,1}", "paths": "/7\n/new", "schemes": b"\1\1",
    "hall_pass": False, "settings_revision": 1, "depth": 0, "grace": "5 min", "source": "", "now": NOW,
}  # fmt: skip
# Every statement that runs for each batch, chunk or job, with parameters for which it reads rows. The tests of the SQL
# functions check their plans (work.settle in test_guestbook.py, work.claim_links and others in test_chunks.py).
CHUNK_FILE = {"kind": "content", "chunk": 7, "sha256": "a" * 64, "now": NOW}
HOT: dict[str, dict[str, Any]] = {
    "chunk_objects.request_upload": CHUNK_FILE,
    "chunk_objects.set_stored": CHUNK_FILE,
    "chunk_objects.page_of_objects": {**CHUNK_FILE, "latest_request": NOW, "n": 1000},
    "hosts.find": {"names": ["www.example7.com", "www.example8.com"]},
    "hosts.host_rules": {"names": ["www.example7.com", "www.example8.com"]},
    "hosts.host_removals": {"names": ["www.example7.com", "example7.com", "com"]},
    "guestbook.page": {"domain64": FIRST, "path": "/7"},
    "guestbook.knock_single": KNOCK,
    "guestbook.knock_full": KNOCK,
    "guestbook.hint": {
        "hosts": f"{{{FIRST}}}",
        "places": "{1,1}",
        "paths": "/7\n/new",
        "changed": f"{{{NOW},{NOW}}}",
        "now": NOW,
    },
    "host_limits.count_up_to": {"domain64s": [FIRST], "maximums": [5]},
    "host_limits.find_known_pages": {"domain64s": f"{{{FIRST},{FIRST}}}", "paths": "/7\n/new"},
    "admin.count_known_pages": {"domain64": FIRST, "most": 5},
    "removals.removals_of_page": {"host": "www.example7.com", "path": "/7"},
    "removal_sweep.last_swept": {},
    "removal_sweep.to_sweep": {"n": 1},
    "removal_sweep.exact_pages": {"host": "www.example7.com", "paths": ["/7"]},
    "removal_sweep.pages_with_prefix": {
        "host": "example7.com",
        "subdomains": True,
        "prefix": "/",
        "low": FIRST,
        "high": FIRST + 256,
        "swept_host": FIRST,
        "swept_path": "/3",
        "n": 5,
    },
}


def as_prepared(text: str) -> str:
    """Return the statement with $1 for %(name)s, as PREPARE requires it."""
    parameters = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, name in enumerate(parameters, 1):
        text = text.replace(f"%({name})s", f"${number}")
    return text.replace("%%", "%")


@pytest.mark.parametrize(("store", "statement"), STATEMENTS)
async def test_every_statement_is_valid_sql(
    conn: Connection, store: Statements, statement: Statement
) -> None:
    del store
    if re.search(r"^do \$\$", statement.text, re.MULTILINE):
        pytest.skip("a DO block cannot be prepared; roles.create runs it")
    await conn.execute(f"prepare it as {as_prepared(statement.text)}".encode())


@pytest.mark.parametrize(("store", "statement"), STATEMENTS)
def test_every_statement_has_a_purpose_and_is_used(store: Statements, statement: Statement) -> None:
    assert statement.text.startswith("-- "), "the first line after the name states its purpose"
    code = store.file.with_suffix(".py").read_text()
    assert re.search(rf"\bstore\.{statement.name}\.(rows|row|only|tuples|column|value|run)\(", code)


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.file.stem)
def test_every_used_statement_exists(store: Statements) -> None:
    code = store.file.with_suffix(".py").read_text()
    for name in re.findall(r"\bstore\.(\w+)\.", code):
        assert getattr(store, name)


@pytest.fixture(scope="module")
async def crowded(migrated: Server) -> AsyncIterator[Connection]:
    """Yield a database with ten pages of each of 3,000 hosts."""
    names = [f"www.example{number}.com" for number in range(3000)]
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        async with await connect(dsn) as conn:
            await hosts.register(conn, names=names, now=NOW)
            await conn.execute(
                "insert into work.guestbook (domain64, path, next_fetch) "
                "select h.domain64, '/' || n, now() from work.hosts h, generate_series(1, 10) n"
            )
            await conn.execute("analyze work.hosts, work.guestbook")
            yield conn


@pytest.mark.parametrize("name", HOT)
async def test_hot_statements_use_an_index(crowded: Connection, name: str) -> None:
    statement = next(
        statement
        for store in STORES
        for statement in store
        if name == f"{store.file.stem}.{statement.name}"
    )
    async with crowded.transaction():
        await guestbook.store.disable_sequential_scans.tuples(crowded)
        plan = await crowded.execute(b"explain " + statement.query, HOT[name])
        lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "Index" in lines
    assert not re.findall(r"Seq Scan on (?!house|settings)\w+", lines)


async def test_schema_sql_matches_the_migrations(
    places: AreaDatabases, request: pytest.FixtureRequest
) -> None:
    if "debian" in request.node.callspec.id:
        pytest.skip("schema.sql is written by the embedded version")
    written = (PACKAGE / "schema" / "schema.sql").read_text()
    assert await schema_ddl(places, tuple(SCHEMAS)) == written, "run `make schema`"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_has_migrations_and_grants(schema: str) -> None:
    assert migrations(schema)
    assert list(migrations(schema)) == sorted(migrations(schema))
    assert (PACKAGE / "schema" / schema / "grants.sql").exists()


def commands(command: click.Command, path: str = "usher") -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            if not child.hidden:
                yield from commands(child, f"{path} {name}")
    else:
        yield path


@pytest.mark.parametrize("path", list(commands(root)))
def test_every_command_is_documented_and_has_help(path: str) -> None:
    assert f"`{path}" in (TREE / "docs" / "cli.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", *path.split(), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize("name", setting_names())
def test_every_setting_is_documented(name: str) -> None:
    text = (TREE / "docs" / "settings.md").read_text()
    assert f"`{name}`" in text
    assert f"USHER_{name.upper()}" in text


def test_every_metric_is_documented() -> None:
    text = (TREE / "docs" / "metrics.md").read_text()
    for metric in REGISTRY.collect():
        assert metric.name in text


def test_every_error_is_in_the_docstring_and_has_a_code() -> None:
    by_code = errors.errors_by_code()
    defined = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == "usher.errors"
    ]
    assert len(by_code) == len(defined)
    for name in defined:
        assert name in (errors.__doc__ or "")
    assert {error.exit_code for error in by_code.values()} <= {1, 2, 3, 4, 5, 6}


SOURCES = sorted(
    [*PACKAGE.rglob("*.py"), *(TREE / "tests").rglob("*.py"), *(TREE / "bench").rglob("*.py")]
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(TREE)))
def test_no_python_file_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.is_relative_to(PACKAGE)], ids=lambda path: path.stem
)
def test_modules_have_docstrings_and_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno
            assert length <= 40, f"{node.name} is {length} lines long"


def test_no_module_has_an_empty_name() -> None:
    words = {"manager", "util", "utils", "helper", "helpers", "common", "base", "misc"}
    modules = {path.stem for path in PACKAGE.rglob("*.py")}
    assert modules & words == {"manager"}


def test_every_advisory_lock_has_its_own_number() -> None:
    """Two packages with the same number would block each other in the default, single database."""
    locks = [
        (number, path.name)
        for path in PACKAGE.rglob("*.py")
        for number in re.findall(
            r"^(?:\w+_)?LOCK\b.*= (0x[0-9a-f_]+)", path.read_text(), re.MULTILINE
        )
    ]
    assert len(locks) > 3
    assert len({number for number, _ in locks}) == len(locks), sorted(locks)


# Files that may read this machine's clock, although their packages write to the database.
LOCAL_CLOCK = {
    "cli/output.py": "ages on the screen",
    "feeds/poll/find_feed.py": "dates of items in a document that is not stored",
    "feeds/items/permalink.py": "Retry-After as a date, compared with the web server's clock",
    "schema/dump.py": "the time in the manifest",
}
DATABASE_PACKAGES = (
    "api",
    "cli",
    "console",
    "door",
    "feeds",
    "local",
    "mgmt",
    "observe",
    "queue",
    "schema",
)


def test_stored_times_come_from_the_database() -> None:
    """A machine with a wrong clock must not write or check leases."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for package in DATABASE_PACKAGES
        for path in (PACKAGE / package).rglob("*.py")
        if re.search(r"datetime\.(now|utcnow|today)\(|\btime\.time\(", path.read_text())
    }
    assert readers == set(LOCAL_CLOCK)
