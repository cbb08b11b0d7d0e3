"""`usher explain`: what Usher knows about one URL."""

import click

from usher.cli.app import App, json_option, pass_app, run, show_json


@click.command()
@click.argument("url")
@json_option
@pass_app
def explain(app: App, url: str, *, as_json: bool) -> None:
    """Tell the story of one URL, from the door to the result page, and whether it can be found now.

    Shows its canonical form or why it has none, its host and the host's clock, what scope and filters
    say, its page in the guestbook, and the answer to each way of knocking with the row of the decision
    table (docs/door.md). Then its last fetch, what robots.txt says of it, its host's pace, its text,
    the chunk it is in and the copies of that. The last line says whether it can be found now, or the
    first reason why not and what to do. Nothing is changed.

    \b
    Examples:
      usher explain https://example.com/news
      usher explain --json example.com
    """
    from usher.cli.actions.explain import explanation_json, read_explanation, show_explanation

    story = run(read_explanation(app, url))
    if as_json:
        show_json(explanation_json(story))
    else:
        show_explanation(story)
