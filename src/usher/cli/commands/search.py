"""`usher front` serves the search page; `usher search` searches from the terminal."""

import click

from usher.cli.app import (
    App,
    bind_option,
    host_option,
    json_option,
    mgmt_option,
    pass_app,
    run,
    run_until_stopped,
)
from usher.cli.output import echo

FRONT_URL = "http://127.0.0.1:8400"


@click.command()
@mgmt_option
@bind_option("127.0.0.1:8400", "Address of the search page.")
@host_option
@click.option(
    "--deadline",
    type=click.FloatRange(0.05, 30),
    default=1.5,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the index servers.",
)
@click.option("--insecure", is_flag=True, help="Accept any host name on loopback, for a proxy.")
@pass_app
def front(
    app: App, mgmt: str | None, bind: str, host: str, deadline: float, *, insecure: bool
) -> None:
    """Serve the search page and its API until stopped; several front-ends may run.

    \b
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

    settings = app.settings_for(mgmt)
    options = FrontEndOptions(bind=read_bind(bind), host=host, deadline=deadline, insecure=insecure)
    run_until_stopped(app, lambda stop: run_front_end(settings, options, stop, ready=echo))


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Results to show.",
)
@click.option("--front", "front_url", metavar="URL", help=f"Front-end to query. [{FRONT_URL}]")
@click.option("--mgmt", metavar="URL", help="Query the index servers of this MGMT.")
@json_option
@pass_app
def search(
    app: App,
    words: tuple[str, ...],
    limit: int,
    front_url: str | None,
    mgmt: str | None,
    *,
    as_json: bool,
) -> None:
    """Search the index; words, "phrases", -word, OR, site:, title:, lang:, after:, before:.

    \b
    Without --front and --mgmt it queries the front-end on this machine; if none runs, the index
    servers. Put -- before words that start with a minus sign.
    Exit code 0: there are results. 3: there are none. 5: no server answered.

    \b
    Examples:
      usher search open source
      usher search --limit 3 'site:example.org "annual report"'
      usher search --json -- jaguar -car
    """
    from usher.cli.actions import search as actions

    if front_url and mgmt:
        raise click.UsageError("Give --front or --mgmt, not both.")
    results = run(actions.search(app, " ".join(words), limit, front=front_url, mgmt=mgmt))
    if as_json:
        actions.show_results_json(results)
    else:
        actions.show_results(app, results)
    if not results.results:
        raise SystemExit(3)
