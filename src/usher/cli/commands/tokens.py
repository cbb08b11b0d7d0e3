"""`usher tokens`: what callers of MGMT prove themselves with."""

import click

from usher.cli.app import App, json_option, pass_app, run

SCOPES = ("read", "work", "admin")
TYPES = ("crawler", "index-builder", "index-server", "front-end", "manager")


@click.group()
def tokens() -> None:
    """Make, list, move and revoke the tokens that callers of MGMT need.

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
    type=click.Choice(SCOPES),
    help="read: look; admin: everything; work (with --type): what such a component does.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Where others reach the component; else its first call decides. A manager's machine.",
)
@click.option("--expires", metavar="TIME", help="Until when it is good from now: 12h, 90d. [never]")
@json_option
@pass_app
def add(
    app: App,
    name: str | None,
    type_: str | None,
    scope: str | None,
    address: str | None,
    expires: str | None,
    *,
    as_json: bool,
) -> None:
    """Make a token and print its secret, once: Usher keeps only a hash of it.

    A component gets a token of its own. Without a name it gets one from its type or scope.

    \b
    Examples:
      usher tokens add --type crawler
      usher tokens add --type manager --address worker-1 --expires 90d
      usher tokens add dashboard --scope read
    """
    from usher.cli.actions import tokens as proofs

    wish = proofs.TokenOptions(
        name, scope or "work", type_, address, proofs.parse_lifetime(expires)
    )
    proofs.show_created(app, run(proofs.create_token(app, wish)), as_json=as_json)


@tokens.command(name="list")
@json_option
@pass_app
def list_(app: App, *, as_json: bool) -> None:
    """List tokens by name: role, address, when they were last used, when they expire."""
    from usher.cli.actions import tokens as proofs

    proofs.show_tokens(run(proofs.find_tokens(app)), as_json=as_json)


@tokens.command()
@click.argument("name")
@click.argument("address", metavar="HOST:PORT")
@pass_app
def move(app: App, name: str, address: str) -> None:
    """Give a component's token another address; a component cannot do this itself.

    \b
    Examples:
      usher tokens move crawler-7 10.0.0.8:8421
    """
    from usher.cli.actions import tokens as proofs

    app.say(f"{name} belongs to {run(proofs.move_token(app, name, address))} now")


@tokens.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_app
def revoke(app: App, names: tuple[str, ...]) -> None:
    """Make tokens good for nothing, within two seconds and for ever; all of them, or none if one is unknown."""
    from usher.cli.actions import tokens as proofs

    for name, new in run(proofs.revoke_tokens(app, names)).items():
        app.say(f"revoked {name}" if new else f"{name} was revoked before")


@tokens.command()
@pass_app
def local(app: App) -> None:
    """Print the secret of the data directory, which lets programs of this user call MGMT on this machine.

    \b
    Examples:
      curl -H "Authorization: Bearer $(usher tokens local)" http://127.0.0.1:8411/v1/jobs
    """
    from usher import local_secret
    from usher.cli.output import echo

    echo(local_secret.create(app.settings.data))
