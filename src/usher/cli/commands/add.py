"""`usher add`: ask the door to admit URLs."""

from pathlib import Path
from typing import Any

import click

from usher.cli.app import App, json_option, pass_app, run


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--full", is_flag=True, help="Knock for the whole host of each URL, not the page.")
@click.option("--pass", "hall_pass", is_flag=True, help="With a hall pass: due or not.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read URLs from this file, one a line; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Say what the door would answer; change nothing.")
@click.option("--summary", is_flag=True, help="Only count the answers, also when they are few.")
@click.option("--jsonl", "as_lines", is_flag=True, help="Print every answer as a line of JSON.")
@json_option
@pass_app
@click.pass_context
def add(ctx: click.Context, app: App, /, **given: Any) -> None:  # noqa: ANN401 - as click read them
    """Knock at the door: ask that URLs come in and be crawled.

    The door answers each URL with a verdict (admit, wait or refuse) and a reason. What it admits is
    queued. A host seen for the first time is registered. `-` reads URLs from standard input. Blank
    lines and lines that begin with # are skipped.

    Exit code 0 if at least one URL was admitted or waits already, 3 if all were refused.

    \b
    Examples:
      usher add https://example.com/
      usher add --dry-run example.com/news example.com/about
      usher add --full --pass www.nasa.gov      the whole host again, now
      usher add --file urls.txt
      zcat urls.gz | usher add --jsonl - > answers.jsonl
    """
    from usher.cli.actions.add import AddOptions, add_urls

    asked = AddOptions(**given)
    if not asked.urls and not asked.files:
        raise click.UsageError("Give a URL, --file FILE, or - for standard input.")
    if asked.as_json and asked.as_lines:
        raise click.UsageError("Give --json or --jsonl, not both.")
    tally = run(add_urls(app, asked))
    ctx.exit(3 if tally.all_refused else 0)
