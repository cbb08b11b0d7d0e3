"""`usher front` serves the search page; `usher search` asks from the terminal."""

import click

from usher.cli.app import App, json_option, pass_app, run
from usher.cli.output import echo

FRONT_URL = "http://127.0.0.1:8400"
mgmt_option = click.option(
    "--mgmt", metavar="URL", help="MGMT's address (also USHER_MGMT_URL).", default=None
)


@click.command()
@mgmt_option
@click.option(
    "--bind",
    default="127.0.0.1:8400",
    show_default=True,
    metavar="HOST:PORT",
    help="Where the search page is served.",
)
@click.option(
    "--host", default="", metavar="HOST:PORT", help="Where others reach it, if not there."
)
@click.option(
    "--deadline",
    type=click.FloatRange(0.05, 30),
    default=1.5,
    show_default=True,
    metavar="SECONDS",
    help="How long index servers have for an answer.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Answer to any name on loopback too, as behind a proxy.",
)
@pass_app
def front(
    app: App, mgmt: str | None, bind: str, host: str, deadline: float, *, insecure: bool
) -> None:
    """Serve the search page and its API, until told to stop; any number of front-ends may.

    \b
    It asks one row of index servers, another if that one is late or not whole, and says so if a
    part of the index did not answer. While MGMT is away it goes on with what it knew last.

    \b
    Examples:
      usher front
      usher front --bind 0.0.0.0:8400 --mgmt http://10.0.0.1:8411
    """
    from dataclasses import replace

    from usher.cli.commands.index import run_until_stopped
    from usher.http.server.listen import read_bind
    from usher.search.front_end import FrontEndOptions
    from usher.search.front_end import run_front_end as serve

    settings = replace(app.settings, mgmt_url=mgmt) if mgmt else app.settings
    wish = FrontEndOptions(bind=read_bind(bind), host=host, deadline=deadline, insecure=insecure)
    run_until_stopped(app, lambda stop: serve(settings, wish, stop, ready=echo))


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Results to show.",
)
@click.option(
    "--front", "front_url", metavar="URL", help=f"The front-end to ask; {FRONT_URL} if it is there."
)
@click.option("--mgmt", metavar="URL", help="Ask the index servers that this MGMT knows.")
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
    Without --front and --mgmt the search page of this machine is asked, and if there is none,
    the index servers themselves. Put -- before words that begin with a minus.
    Exit code 0: something was found. 3: nothing was. 5: nobody answered.

    \b
    Examples:
      usher search open source
      usher search --limit 3 'site:example.org "annual report"'
      usher search --json -- jaguar -car
    """
    from usher.cli.actions import search as found

    if front_url and mgmt:
        raise click.UsageError("--front and --mgmt are two ways to ask; give one of them.")
    told = run(found.search(app.settings, " ".join(words), limit, front=front_url, mgmt=mgmt))
    if as_json:
        found.show_results_json(told)
    else:
        found.show_results(app, told)
    if not told.results:
        raise SystemExit(3)
