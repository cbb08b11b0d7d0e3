"""`usher crawl`, `usher up` and `usher demo`: everything on this machine, by one command."""

from typing import Any

import click

from usher.cli.app import App, pass_app, run_service
from usher.cli.output import echo

keep_option = click.option("--keep-warc", is_flag=True, help="Keep every WARC file: an archive.")
front_option = click.option(
    "--front", default="", metavar="HOST:PORT", help="Where the search page is served."
)
jobs_option = click.option(
    "--jobs", is_flag=True, help="Also run tasks, feeds and other jobs: a scheduler and a manager."
)


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL…")
@click.option(
    "--delay",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="Rest between two requests to a host.",
)
@click.option("--max-pages", type=click.IntRange(1), help="How many pages each host may have.")
@click.option("--max-depth", type=click.IntRange(0, 30_000), help="How many clicks from the URL.")
@click.option("--again", is_flag=True, help="Fetch again what is not due yet.")
@click.option(
    "--then",
    type=click.Choice(["end", "serve"]),
    default="end",
    show_default=True,
    help="What to do when it is done: end, or go on serving the search page.",
)
@jobs_option
@keep_option
@front_option
@pass_app
def crawl(app: App, /, urls: tuple[str, ...], then: str, **given: Any) -> None:  # noqa: ANN401
    """Crawl a site and make it searchable: everything that takes, on this machine, in one command.

    \b
    It starts an embedded PostgreSQL and every role that a crawl needs, shows how far it is, serves
    the search page meanwhile, and ends when every page is fetched and can be found. Ctrl-C lets what
    is under way end; run it again and it goes on where it was. Only hosts that you name are crawled.
    No jobs run unless you ask for them with --jobs.

    \b
    Examples:
      usher crawl https://example.com/
      usher crawl --then serve --delay 0.5 https://docs.example.com/
      usher crawl --again https://example.com/
    """
    from usher.cli.actions.local import crawl
    from usher.local.crawl import LocalRunOptions

    errand = LocalRunOptions(urls=urls, **given)
    run_service(app, crawl(app, errand, serve=then == "serve"))


@click.command()
@keep_option
@front_option
@pass_app
def up(app: App, *, keep_warc: bool, front: str) -> None:
    """Run every role on this machine until told to stop, with the search page.

    \b
    Pages come in by `usher add`, by tasks and by feeds; settings are those of usher.toml.

    \b
    Examples:
      usher up
      usher up --front 0.0.0.0:8400
    """
    from usher.cli.actions.local import run_up
    from usher.local.crawl import LocalRunOptions

    run_service(app, run_up(app, LocalRunOptions(keep_warc=keep_warc, front=front, jobs=True)))


@click.command()
@click.option("--then", type=click.Choice(["end", "serve"]), default="serve", show_default=True)
@jobs_option
@pass_app
def demo(app: App, then: str, *, jobs: bool) -> None:
    """Crawl a small site that comes with Usher, without any network, and serve its search page.

    \b
    Everything goes to a directory of its own (DATA/demo), and can be thrown away with it.

    \b
    Examples:
      usher demo
    """
    from usher.cli.actions.local import run_demo

    run_service(app, run_demo(app, serve=then == "serve", jobs=jobs))


@click.command(hidden=True)
@click.argument("part")
@click.option("--keep-warc", is_flag=True)
@click.option("--front", default="")
@click.option("--jobs", is_flag=True)
@pass_app
def part(app: App, part: str, *, keep_warc: bool, front: str, jobs: bool) -> None:
    """Play one part of the troupe; `usher up` starts these."""
    from usher.local.ports import Ports
    from usher.local.roles import ROLE_PROCESSES, RoleContext, run_process

    if part not in ROLE_PROCESSES:
        raise click.BadParameter(f"one of {', '.join(ROLE_PROCESSES)}")
    post = RoleContext(app.loaded, Ports.read(app.settings.data), keep_warc, front, jobs)
    run_service(app, run_process(part, post, ready=echo))
