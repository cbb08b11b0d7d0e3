"""`usher db`: create, migrate, back up and check the schemas and roles of the databases."""

import dataclasses
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from usher.cli.app import (
    App,
    confirm,
    json_option,
    pass_app,
    range_option,
    run,
    show_json,
    show_list,
    show_table,
    yes_option,
)
from usher.cli.help import HelpGroup
from usher.cli.output import echo

if TYPE_CHECKING:
    from usher.db.areas import AreaDatabases
    from usher.schema.partitions import PartitionPlan
    from usher.schema.state import SchemaState

P = ParamSpec("P")
T = TypeVar("T")
SCHEMA_NAMES = ("work", "control", "feeds", "multimatch")
schema_option = click.option(
    "--schema",
    "schemas",
    multiple=True,
    type=click.Choice(SCHEMA_NAMES),
    help="Only this schema; may be repeated.",
)


def call_with_areas(
    app: App,
    function: "Callable[Concatenate[AreaDatabases, P], Coroutine[Any, Any, T]]",
    *args: P.args,
    **values: P.kwargs,
) -> T:
    """Call one function with the databases of the settings, and return its result."""
    from usher.db.areas import open_areas

    with open_areas(app.settings) as areas:
        return run(function(areas, *args, **values))


@click.group(cls=HelpGroup)
def db() -> None:
    """Create, migrate, back up and check the databases.

    \b
    Examples:
      usher db status
      usher db migrate
      usher db dump backup-monday && usher db restore backup-monday --replace
      usher db roles check
    """


@db.command()
@schema_option
@json_option
@pass_app
def status(app: App, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Show the version of each schema, and the partitions of the guestbook; exit code 6 if one is behind."""
    from usher.schema import migrate
    from usher.schema.state import out_of_date_error, unknown_migrations_error

    states = call_with_areas(app, migrate.status, schemas or SCHEMA_NAMES)
    rows = [
        (
            state.schema,
            state.applied[-1] if state.applied else "-",
            len(state.applied),
            len(state.pending),
            len(state.unknown),
            state.partitions or "-",
        )
        for state in states
    ]
    headings = ("SCHEMA", "VERSION", "APPLIED", "PENDING", "UNKNOWN", "PARTITIONS")
    show_list(app, states, headings, rows, as_json=as_json, to_json=state_json)
    for state in states:
        if state.unknown and not state.refused:
            app.say(
                f"Schema {state.schema!r} is newer than this Usher, which works with it: upgrade this one next."
            )
        if state.refused:
            raise unknown_migrations_error(state)
    if behind := [state.schema for state in states if state.pending]:
        raise out_of_date_error(behind)


@db.command(name="migrate")
@schema_option
@json_option
@pass_app
def migrate_(app: App, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Migrate the schemas to this version; several may run at once."""
    from usher.schema import migrate

    timeout = app.settings.connect_timeout
    steps = call_with_areas(app, migrate.migrate, schemas or SCHEMA_NAMES, patience=timeout)
    report(app, "applied", steps, as_json=as_json)


@db.command()
@schema_option
@json_option
@pass_app
def create(app: App, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Create missing databases and the schemas in them."""
    from usher.db.areas import open_areas
    from usher.schema import databases, migrate

    with open_areas(app.settings) as areas:
        for dsn in areas.databases(schemas or SCHEMA_NAMES):
            if run(databases.create_database(dsn)):
                app.say("created a database")
        steps = run(migrate.migrate(areas, schemas or SCHEMA_NAMES))
    report(app, "applied", steps, as_json=as_json)


@db.command()
@click.option(
    "--schema",
    required=True,
    type=click.Choice(SCHEMA_NAMES),
    help="Undo migrations of this schema.",
)
@range_option("--steps", 1, 1, None, "Number of migrations to undo.")
@json_option
@yes_option
@pass_app
def rollback(app: App, schema: str, steps: int, *, as_json: bool, yes: bool) -> None:
    """Undo the newest migrations of one schema; their data is lost."""
    from usher.schema import migrate

    confirm(
        f"Undo the newest {steps} migration(s) of schema {schema} and lose their data?", yes=yes
    )
    undone = call_with_areas(app, migrate.rollback, schema, count=steps)
    report(app, "undone", undone, as_json=as_json)


@db.command()
@schema_option
@yes_option
@pass_app
def drop(app: App, schemas: tuple[str, ...], *, yes: bool) -> None:
    """Remove schemas with all their data."""
    from usher.schema import migrate

    chosen = schemas or SCHEMA_NAMES
    confirm(f"Remove {', '.join(chosen)} with all their data?", yes=yes)
    call_with_areas(app, migrate.drop, chosen)
    app.say(f"removed {', '.join(chosen)}")


@db.command()
@click.argument("directory", type=click.Path(path_type=Path))
@schema_option
@json_option
@pass_app
def dump(app: App, directory: Path, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Back up the schemas to a new directory, as of one moment."""
    from usher.schema import dump as dumps

    chosen, pg_bin = schemas or SCHEMA_NAMES, app.settings.pg_bin
    written = call_with_areas(app, dumps.dump, directory, chosen, pg_bin=pg_bin)
    rows = [(file.schema, file.file, file.bytes) for file in written]
    headings = ("SCHEMA", "FILE", "BYTES")
    show_list(app, written, headings, rows, as_json=as_json, to_json=dataclasses.asdict)


@db.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@schema_option
@click.option("--replace", is_flag=True, help="Replace existing schemas.")
@pass_app
def restore(app: App, directory: Path, schemas: tuple[str, ...], *, replace: bool) -> None:
    """Restore schemas from a backup; each completely or not at all."""
    from usher.db.areas import open_areas
    from usher.schema import migrate
    from usher.schema import restore as restores

    with open_areas(app.settings) as areas:
        pg_bin = app.settings.pg_bin
        run(restores.restore(areas, directory, schemas, replace=replace, pg_bin=pg_bin))
        behind = [state.schema for state in run(migrate.status(areas)) if state.pending]
    app.say(f"restored from {directory}")
    if behind:
        app.say(f"  → {', '.join(behind)}: run `usher db migrate`, then `usher db incarnate`")


@db.command()
@click.option("--reason", default="the operator restored it", help="Reason, for the log.")
@yes_option
@pass_app
def incarnate(app: App, reason: str, *, yes: bool) -> None:
    """Tell all components that the database was restored without `usher db restore`.

    Run it after point-in-time recovery, pg_restore or a failover with data loss, before MGMT starts: new ids continue
    after all issued ones, and index servers compare their chunks with the database.
    """
    from usher.schema import restore as restores

    confirm("Compare the chunks of all index servers? Searches are partial until then.", yes=yes)
    call_with_areas(app, restores.incarnate, reason)
    app.say("A new incarnation was started.")


@db.command()
@range_option(
    "--partitions", 2, 1, 64, "Number of partitions; 1 makes the guestbook one table again."
)
@click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
@json_option
@yes_option
@pass_app
def partition(app: App, partitions: int, *, dry_run: bool, as_json: bool, yes: bool) -> None:
    """Divide the guestbook into partitions by ranges of hosts.

    It copies all pages in one transaction, so stop MGMT, watchdog, scheduler and manager before. Useful from about
    100 million pages on.

    \b
    Examples:
      usher db partition --dry-run
      usher db partition --partitions 8
      usher db partition --partitions 1
    """
    plan = make_partitions(app, partitions, dry_run=dry_run, yes=yes)
    if as_json:
        show_json({**dataclasses.asdict(plan), "partitions": plan.partitions})
        return
    if not plan.changes:
        app.say("The guestbook is one table already.")
        return
    show_table(("PARTITION", "FIRST HOST", "LAST HOST", "PAGES"), partition_rows(plan))
    if plan.partitions < partitions:
        app.say(f"Only {plan.partitions} partitions: {fewer_parts_reason(plan, partitions)}.")
    if dry_run:
        app.say(
            f"The copy takes {plan.bytes / 1e9:.1f} GB of disk beside the present table, and the same in WAL. "
            "All other statements on the guestbook wait until the commit."
        )
    else:
        app.say("The guestbook was copied. `usher db status` shows its form.")


def make_partitions(app: App, partitions: int, *, dry_run: bool, yes: bool) -> "PartitionPlan":
    """Plan the partitions and, unless it is a dry run, make them; first check what can fail, then ask."""
    from usher.db.areas import open_areas
    from usher.schema import partitions as forms

    with open_areas(app.settings) as areas:
        if dry_run:
            return run(forms.plan(areas, partitions))
        if not yes:
            plan = run(forms.plan(areas, partitions, must_be_alone=True))
            if not plan.changes:
                return plan
            confirm("Copy the guestbook? Usher cannot work until that has ended.", yes=False)
        return run(forms.partition(areas, partitions))


def partition_rows(plan: "PartitionPlan") -> list[tuple[int, str, str, str]]:
    """Return a row for each partition; the numbers of pages are estimates."""
    from usher.domain64 import to_hex

    bounds = list(plan.bounds or ())
    firsts = ["-", *map(to_hex, bounds)]
    lasts = [*(to_hex(bound - 1) for bound in bounds), "-"]
    pages = [f"~{number:,}" for number in plan.part_pages]
    return [(at, *row) for at, row in enumerate(zip(firsts, lasts, pages, strict=True), 1)]


def fewer_parts_reason(plan: "PartitionPlan", wanted: int) -> str:
    """Return why there are fewer parts than wanted: each has at least one host, and no host is divided."""
    if plan.hosts is not None and plan.hosts < wanted:
        return f"the guestbook has pages of only {plan.hosts} hosts"
    return "a host has more pages than a part"


@db.command()
@schema_option
@pass_app
def schema(app: App, schemas: tuple[str, ...]) -> None:
    """Print the schemas as SQL, in a stable order."""
    from usher.schema import dump as dumps

    chosen, pg_bin = schemas or SCHEMA_NAMES, app.settings.pg_bin
    echo(call_with_areas(app, dumps.schema_ddl, chosen, pg_bin=pg_bin), nl=False)


@db.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--schema",
    "schema_",
    default="control",
    show_default=True,
    type=click.Choice(SCHEMA_NAMES),
    help="Database and search path.",
)
@click.option("--role", default="", metavar="ROLE", help="Role to use, such as usher_reader.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PSQL ARGS]...")
@pass_app
def shell(app: App, schema_: str, role: str, words: tuple[str, ...]) -> int:
    """Open psql on a database with the login of the settings; further arguments go to psql.

    \b
    Examples:
      usher db shell
      usher db shell --schema work --role usher_reader
      usher db shell -- -c "select state, count(*) from job group by 1"
    """
    from usher.db.areas import open_areas
    from usher.schema.roles import ROLES
    from usher.schema.shell import run_psql

    if role and role not in ROLES:
        raise click.BadParameter(f"{role!r} is none of {', '.join(ROLES)}.", param_hint="--role")
    with open_areas(app.settings) as areas:
        pg_bin = app.settings.pg_bin
        return run_psql(areas.dsn(schema_), words, schema=schema_, role=role, pg_bin=pg_bin)


@db.group()
def roles() -> None:
    """Create and check the database roles of Usher's processes, each with minimal rights."""


@roles.command(name="create")
@click.option(
    "--passwords", is_flag=True, help="Set a new password for every role and print it once."
)
@json_option
@pass_app
def create_roles(app: App, *, passwords: bool, as_json: bool) -> None:
    """Create the roles and set their grants; can be repeated."""
    from usher.schema import databases

    passwords_by_role = call_with_areas(app, databases.create_roles, passwords=passwords)
    if as_json:
        show_json(passwords_by_role)
    elif passwords:
        show_table(("ROLE", "PASSWORD"), list(passwords_by_role.items()))
    app.say("Roles and grants are correct.")


@roles.command(name="check")
@json_option
@pass_app
def check_roles(app: App, *, as_json: bool) -> int:
    """Compare the grants with the expected ones; exit code 3 if they differ."""
    from usher.schema import databases

    findings = call_with_areas(app, databases.check_roles)
    if as_json:
        show_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            for role in finding.absent:
                echo(f"missing role   {role}")
            for privilege in finding.missing:
                echo(f"missing grant  {privilege}")
            for privilege in finding.extra:
                echo(f"extra grant    {privilege}")
    if not all(finding.good for finding in findings):
        app.say("usher: The roles differ.\n  → usher db roles create")
        return 3
    app.say("Roles and grants are correct.")
    return 0


def state_json(state: "SchemaState") -> dict[str, Any]:
    return {**dataclasses.asdict(state), "current": state.current}


def report(app: App, verb: str, changes: list[Any], *, as_json: bool) -> None:
    if as_json:
        show_json([dataclasses.asdict(change) for change in changes])
        return
    for change in changes:
        echo(f"{verb} {change.schema} {change.version}_{change.name}")
    if not changes:
        app.say("Nothing to do.")
