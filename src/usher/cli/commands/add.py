"""`usher add`: ask the door to admit URLs."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import App, existing_file, json_option, pass_app, run


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--full", is_flag=True, help="Add the whole host of each URL.")
@click.option("--pass", "hall_pass", is_flag=True, help="Fetch pages again that are not due yet.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=existing_file,
    help="Read URLs from this file, one per line; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the answers; change nothing.")
@click.option("--summary", is_flag=True, help="Show only the counts.")
@click.option("--jsonl", "as_lines", is_flag=True, help="Print each answer as a line of JSON.")
@json_option
@pass_app
def add(app: App, /, **options: Any) -> int:  # noqa: ANN401 - as click read them
    """Add URLs to the crawl, for `usher up` or another crawler to fetch.

    Each URL gets a verdict (admit, wait or refuse) and a reason. Admitted URLs are queued. A host is
    registered on its first URL. `-` reads URLs from standard input. Blank lines
    and lines that start with # are skipped.

    Exit code 0 if at least one URL was admitted or already waits, 3 if all were refused.

    \b
    Examples:
      usher add https://example.com/
      usher add --dry-run example.com/news example.com/about
      usher add --full --pass www.nasa.gov      crawl the whole host again, now
      usher add --file urls.txt
      zcat urls.gz | usher add --jsonl - > answers.jsonl
    """
    given = actions.add.AddOptions(**options)
    if not given.urls and not given.files:
        raise click.UsageError("Give a URL, --file FILE, or - for standard input.")
    if given.as_json and given.as_lines:
        raise click.UsageError("Give --json or --jsonl, not both.")
    counts = run(actions.add.add_urls(app, given))
    return 3 if counts.all_refused else 0
