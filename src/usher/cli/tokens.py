"""`usher tokens`: what components on other machines prove themselves by."""

import click

from usher.cli.app import App, json_option, pass_app, run

SCOPES = ("read", "work", "admin")
TYPES = ("crawler", "index-builder", "index-server", "front-end", "manager")


@click.group()
def tokens() -> None:
    """Make, list and revoke the tokens that callers from other machines need.

    \b
    Examples:
      usher tokens add crawlers --scope work --type crawler
      usher tokens list
      usher tokens revoke crawlers
    """


@tokens.command()
@click.argument("name", required=False)
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="work",
    show_default=True,
    help="read: look; work: also ask for work and report it; admin: everything.",
)
@click.option("--type", "type_", type=click.Choice(TYPES), help="Only for components of this type.")
@json_option
@pass_app
def add(app: App, name: str | None, scope: str, type_: str | None, *, as_json: bool) -> None:
    """Make a token and print its secret, once: only a hash of it is kept.

    Without a name it gets one from its type or scope.

    \b
    Examples:
      usher tokens add --scope work --type crawler
      usher tokens add dashboard --scope read
    """
    from usher.cli import proofs

    proofs.show_made(app, run(proofs.make(app, name, scope, type_)), as_json=as_json)


@tokens.command(name="list")
@json_option
@pass_app
def list_(app: App, *, as_json: bool) -> None:
    """List tokens by name: what they are good for, when they were last used, whether they were revoked."""
    from usher.cli import proofs

    proofs.show_tokens(run(proofs.find_tokens(app)), as_json=as_json)


@tokens.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_app
def revoke(app: App, names: tuple[str, ...]) -> None:
    """Make tokens good for nothing, within seconds and for ever; all of them, or none if one is unknown."""
    from usher.cli import proofs

    for name, new in run(proofs.revoke(app, names)).items():
        app.say(f"revoked {name}" if new else f"{name} was revoked before")
