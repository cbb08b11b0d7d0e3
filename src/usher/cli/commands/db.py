"""`usher db`: the schemas and roles of the databases."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from usher.cli.app import (
    App,
    confirm,
    json_option,
    pass_app,
    run,
    show_json,
    show_table,
    yes_option,
)
from usher.cli.output import echo

SCHEMA_NAMES = ("work", "control", "feeds", "multimatch")
Command = Callable[..., Any]


def schema_option(command: Command) -> Command:
    option = click.option(
        "--schema",
        "schemas",
        multiple=True,
        type=click.Choice(SCHEMA_NAMES),
        help="Only this one; may be repeated.",
    )
    return option(command)


@click.group()
def db() -> None:
    """Make, upgrade, back up and check the databases.

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
    """Show how far each schema is; exit code 6 if one is behind."""
    from usher.db.areas import open_areas
    from usher.schema import migrate
    from usher.schema.state import out_of_date_error, unknown_migrations_error

    with open_areas(app.settings) as found:
        states = run(migrate.status(found, schemas or SCHEMA_NAMES))
    if as_json:
        show_json([{**dataclasses.asdict(state), "current": state.current} for state in states])
    else:
        rows = [
            (
                s.schema,
                s.applied[-1] if s.applied else "-",
                len(s.applied),
                len(s.pending),
                len(s.unknown),
            )
            for s in states
        ]
        show_table(("SCHEMA", "VERSION", "APPLIED", "PENDING", "UNKNOWN"), rows)
    for state in states:
        if state.unknown:
            raise unknown_migrations_error(state)
    if behind := [state.schema for state in states if state.pending]:
        raise out_of_date_error(behind)


@db.command(name="migrate")
@schema_option
@json_option
@pass_app
def migrate_(app: App, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Bring the schemas up to date; safe when several start at once."""
    from usher.db.areas import open_areas
    from usher.schema import migrate

    with open_areas(app.settings) as found:
        made = run(
            migrate.migrate(found, schemas or SCHEMA_NAMES, patience=app.settings.connect_timeout)
        )
    report(app, "made", made, as_json=as_json)


@db.command()
@schema_option
@json_option
@pass_app
def create(app: App, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Make the databases if they are not there, then the schemas in them."""
    from usher.db.areas import open_areas
    from usher.schema import databases, migrate

    with open_areas(app.settings) as found:
        for dsn in found.databases(schemas or SCHEMA_NAMES):
            if run(databases.create_database(dsn)):
                app.say("made a database")
        made = run(migrate.migrate(found, schemas or SCHEMA_NAMES))
    report(app, "made", made, as_json=as_json)


@db.command()
@click.option("--schema", required=True, type=click.Choice(SCHEMA_NAMES))
@click.option(
    "--steps", default=1, show_default=True, type=click.IntRange(min=1), help="How many to undo."
)
@json_option
@yes_option
@pass_app
def rollback(app: App, schema: str, steps: int, *, as_json: bool, yes: bool) -> None:
    """Undo the newest migrations of one schema, with the data they hold."""
    from usher.db.areas import open_areas
    from usher.schema import migrate

    confirm(
        f"Undo the newest {steps} step(s) of schema {schema} and lose the data in them?", yes=yes
    )
    with open_areas(app.settings) as found:
        undone = run(migrate.rollback(found, schema, count=steps))
    report(app, "undone", undone, as_json=as_json)


@db.command()
@schema_option
@yes_option
@pass_app
def drop(app: App, schemas: tuple[str, ...], *, yes: bool) -> None:
    """Remove the schemas and everything in them."""
    from usher.db.areas import open_areas
    from usher.schema import migrate

    chosen = schemas or SCHEMA_NAMES
    confirm(f"Remove {', '.join(chosen)} with everything in them?", yes=yes)
    with open_areas(app.settings) as found:
        run(migrate.drop(found, chosen))
    app.say(f"removed {', '.join(chosen)}")


@db.command()
@click.argument("directory", type=click.Path(path_type=Path))
@schema_option
@json_option
@pass_app
def dump(app: App, directory: Path, schemas: tuple[str, ...], *, as_json: bool) -> None:
    """Write the schemas to a new directory, all from one moment."""
    from usher.db.areas import open_areas
    from usher.schema import dump as dumps

    with open_areas(app.settings) as found:
        written = run(
            dumps.dump(found, directory, schemas or SCHEMA_NAMES, pg_bin=app.settings.pg_bin)
        )
    if as_json:
        show_json([dataclasses.asdict(one) for one in written])
    else:
        show_table(
            ("SCHEMA", "FILE", "BYTES"), [(one.schema, one.file, one.bytes) for one in written]
        )


@db.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@schema_option
@click.option("--replace", is_flag=True, help="Replace schemas that are there.")
@pass_app
def restore(app: App, directory: Path, schemas: tuple[str, ...], *, replace: bool) -> None:
    """Read schemas back from a dump; each comes whole or not at all."""
    from usher.db.areas import open_areas
    from usher.schema import migrate
    from usher.schema import restore as restores

    with open_areas(app.settings) as found:
        pg_bin = app.settings.pg_bin
        run(restores.restore(found, directory, schemas, replace=replace, pg_bin=pg_bin))
        behind = [state.schema for state in run(migrate.status(found)) if state.pending]
    app.say(f"restored from {directory}")
    if behind:
        app.say(f"  → {', '.join(behind)}: run `usher db migrate`, then `usher db incarnate`")


@db.command()
@click.option("--reason", default="the operator restored it", help="What happened, for the log.")
@yes_option
@pass_app
def incarnate(app: App, reason: str, *, yes: bool) -> None:
    """Tell all components that the database was restored by other means.

    `usher db restore` does this itself. Run it after point-in-time recovery, pg_restore or a lost failover, before
    MGMT is started: ids continue after all that were issued, and index servers compare their chunks with the database.
    """
    from usher.db.areas import open_areas
    from usher.schema import restore as restores

    confirm("Have all index servers compare their chunks? Answers are partial until then.", yes=yes)
    with open_areas(app.settings) as found:
        run(restores.incarnate(found, reason))
    app.say("a new incarnation has begun")


@db.command()
@schema_option
@pass_app
def schema(app: App, schemas: tuple[str, ...]) -> None:
    """Print the tables as SQL: the same text for the same schemas."""
    from usher.db.areas import open_areas
    from usher.schema import dump as dumps

    with open_areas(app.settings) as found:
        echo(
            run(dumps.schema_ddl(found, schemas or SCHEMA_NAMES, pg_bin=app.settings.pg_bin)),
            nl=False,
        )


@db.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--schema",
    "schema_",
    default="control",
    show_default=True,
    type=click.Choice(SCHEMA_NAMES),
    help="Which database, and the search path.",
)
@click.option("--role", default="", metavar="ROLE", help="Work as this role, such as usher_reader.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PSQL ARGS]...")
@pass_app
@click.pass_context
def shell(ctx: click.Context, app: App, schema_: str, role: str, words: tuple[str, ...]) -> None:
    """Open psql on a database with the login of the settings; what follows is for psql.

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
    with open_areas(app.settings) as found:
        pg_bin = app.settings.pg_bin
        ctx.exit(run_psql(found.dsn(schema_), words, schema=schema_, role=role, pg_bin=pg_bin))


@db.group()
def roles() -> None:
    """The roles that Usher's processes run under, each with the least it needs."""


@roles.command(name="create")
@click.option("--passwords", is_flag=True, help="Give every role a new password and print it once.")
@json_option
@pass_app
def create_roles(app: App, *, passwords: bool, as_json: bool) -> None:
    """Make the roles and grant exactly what the schemas' files say; repeat it as you like."""
    from usher.db.areas import open_areas
    from usher.schema import databases

    with open_areas(app.settings) as found:
        given = run(databases.create_roles(found, passwords=passwords))
    if as_json:
        show_json(given)
    elif passwords:
        show_table(("ROLE", "PASSWORD"), list(given.items()))
    app.say("roles and grants are as they should be")


@roles.command(name="check")
@json_option
@pass_app
@click.pass_context
def check_roles(ctx: click.Context, app: App, *, as_json: bool) -> None:
    """Compare the grants in force with what they should be; exit code 3 if they differ."""
    from usher.db.areas import open_areas
    from usher.schema import databases

    with open_areas(app.settings) as found:
        findings = run(databases.check_roles(found))
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
        app.say("usher: roles differ\n  → usher db roles create")
        ctx.exit(3)
    app.say("roles and grants are as they should be")


def report(app: App, verb: str, changes: list[Any], *, as_json: bool) -> None:
    if as_json:
        show_json([dataclasses.asdict(change) for change in changes])
        return
    for change in changes:
        echo(f"{verb} {change.schema} {change.version}_{change.name}")
    if not changes:
        app.say("nothing to do")
