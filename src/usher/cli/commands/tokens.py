"""`usher tokens`: create, list, move and revoke the tokens of callers of MGMT."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import App, json_option, pass_app, run
from usher.cli.help import HelpGroup

SCOPES = ("read", "work", "admin")
TYPES = ("crawler", "index-builder", "index-server", "front-end", "manager")


@click.group(cls=HelpGroup)
def tokens() -> None:
    """Create, list, move and revoke the tokens that authenticate callers of MGMT.

    \b
    Examples:
      usher tokens add crawler-7 --type crawler --address 10.0.0.7:8421
      usher tokens list
      usher tokens revoke crawler-7
    """


@tokens.command()
@click.argument("name", required=False)
@click.option("--type", "type_", type=click.Choice(TYPES), help="For a component of this type.")
@click.option(
    "--scope",
    default="work",
    type=click.Choice(SCOPES),
    help="read: read only; admin: everything; work (with --type): what that component needs.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Address of the component, or machine of a manager. [from its first call]",
)
@click.option("--expires", metavar="TIME", help="Lifetime from now: 12h, 90d. [unlimited]")
@json_option
@pass_app
def add(app: App, /, name: str | None, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Create a token and print its secret once; Usher stores only a hash.

    Each component needs its own token. Without a name, the token is named after its type or scope.

    \b
    Examples:
      usher tokens add --type crawler
      usher tokens add --type manager --address worker-1 --expires 90d
      usher tokens add dashboard --scope read
    """
    run(actions.tokens.create_token(app, name, **options))


@tokens.command(name="list")
@click.option("--contains", metavar="TEXT", help="Only with this text in name, type or address.")
@click.option("--scope", type=click.Choice(SCOPES), help="Only with this scope.")
@json_option
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List tokens by name: scope, type, address, last use and expiry."""
    actions.tokens.show_tokens(app, **options)


@tokens.command()
@click.argument("name")
@click.argument("address", metavar="HOST:PORT")
@pass_app
def move(app: App, name: str, address: str) -> None:
    """Change the address of a component's token; a component cannot do this itself.

    \b
    Examples:
      usher tokens move crawler-7 10.0.0.8:8421
    """
    actions.tokens.move_token(app, name, address)


@tokens.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_app
def revoke(app: App, names: tuple[str, ...]) -> None:
    """Revoke tokens permanently, within two seconds; all of them, or none if one is unknown."""
    run(actions.tokens.revoke_tokens(app, names))


@tokens.command()
@pass_app
def local(app: App) -> None:
    """Print the secret of the data directory, with which programs of this user can call MGMT on this machine.

    \b
    Examples:
      curl -H "Authorization: Bearer $(usher tokens local)" http://127.0.0.1:8411/v1/jobs
    """
    from usher import local_secret
    from usher.cli.output import echo

    echo(local_secret.create(app.settings.data))
