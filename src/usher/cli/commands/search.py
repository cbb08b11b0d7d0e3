"""`usher front` serves the search page; `usher search` searches from the terminal."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    App,
    announce,
    bind_option,
    host_option,
    json_option,
    mgmt_option,
    pass_app,
    range_option,
    run,
    run_until_stopped,
)

FRONT_URL = "http://127.0.0.1:8400"


@click.command()
@mgmt_option
@bind_option("127.0.0.1:8400", "Address of the search page.")
@host_option
@range_option("--deadline", 1.5, 0.05, 30, "Time limit for the index servers.", "SECONDS")
@click.option("--insecure", is_flag=True, help="Accept any host name on loopback, for a proxy.")
@pass_app
def front(app: App, /, *, mgmt: str | None, bind: str, **options: Any) -> None:  # noqa: ANN401
    """Serve the search page and its API until stopped; several front-ends may run.

    Queries one row of index servers and fails over to another row if a server is late or missing.
    Marks results as partial if part of the index did not answer. While MGMT is down it uses the
    last known map of servers.

    \b
    Examples:
      usher front
      usher front --bind 0.0.0.0:8400 --mgmt http://10.0.0.1:8411
    """
    from usher.http.server.listen import read_bind
    from usher.search.front_end import FrontEndOptions, run_front_end

    settings, given = app.settings_for(mgmt), FrontEndOptions(bind=read_bind(bind), **options)
    run_until_stopped(app, lambda stop: run_front_end(settings, given, stop, ready=announce))


@click.command()
@click.argument("words", nargs=-1, required=True)
@range_option("--limit", 10, 1, 100, "Results to show.")
@click.option(
    "--front",
    "front_url",
    metavar="URL",
    help=f"Front-end to query, such as {FRONT_URL}. [that of `usher up` in the data directory]",
)
@click.option("--mgmt", metavar="URL", help="Query the index servers of this MGMT.")
@click.option("--verbatim", is_flag=True, help="Do not correct the spelling.")
@click.option("--explain", is_flag=True, help="Show why each result ranks where it does.")
@json_option
@pass_app
def search(
    app: App,
    words: tuple[str, ...],
    limit: int,
    front_url: str | None,
    mgmt: str | None,
    *,
    verbatim: bool,
    explain: bool,
    as_json: bool,
) -> int:
    """Search the index; words, "phrases", +word, -word, OR, site:, title:, lang:, after:, before:.

    Without --front and --mgmt it queries the front-end of `usher up` in the data directory. If
    `usher up` never ran there and --data is not given, it queries the front-end at
    http://127.0.0.1:8400; if none runs, the index servers. A front-end that runs on its own beside
    other data needs --front. Put -- before words that start with a minus sign.
    Exit code 0: there are results. 3: there are none. 5: no server answered.

    \b
    Examples:
      usher search open source
      usher search --limit 3 'site:example.org "annual report"'
      usher search --json -- jaguar -car
      usher search --explain how to open a file
    """
    if front_url and mgmt:
        raise click.UsageError("Give --front or --mgmt, not both.")
    request = actions.search.Request(" ".join(words), limit, verbatim=verbatim, explain=explain)
    results = run(actions.search.search(app, request, front=front_url, mgmt=mgmt))
    if as_json:
        actions.search.show_results_json(results)
    else:
        actions.search.show_results(app, results)
    return 0 if results.results else 3
