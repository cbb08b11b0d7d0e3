"""`usher explain`: what Usher knows about one URL."""

import click

from usher.cli import actions
from usher.cli.app import App, json_option, pass_app


@click.command()
@click.argument("url")
@json_option
@pass_app
def explain(app: App, url: str, *, as_json: bool) -> None:
    """Show what happened to one URL, from the door to the search page, and whether it is searchable.

    The first line says whether the page is searchable now, or the first reason why not and what to do.
    Then follow its canonical form, its host and when that is due, the filters, what Usher stores about
    the page, and the answers to each way to add it, with the row of the decision table (docs/door.md).
    Last come its last fetch, robots.txt, the politeness of its host, its text, and its chunk with all
    copies. Nothing is changed.

    \b
    Examples:
      usher explain https://example.com/news
      usher explain --json example.com
    """
    actions.explain.show_explanation(app, url, as_json=as_json)
