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

    Shows its canonical form, its host and the host's clock, the filters, its page in the guestbook, and
    the door's answer to each kind of knock with the row of the decision table (docs/door.md). Then its
    last fetch, robots.txt, the politeness of its host, its text, and its chunk with all copies. The
    first line says whether the page is searchable now, or the first reason why not and what to do.
    Nothing is changed.

    \b
    Examples:
      usher explain https://example.com/news
      usher explain --json example.com
    """
    actions.explain.show_explanation(app, url, as_json=as_json)
