"""`usher crawl`, `usher up` and `usher demo`: run every role on this machine with one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usher.cli import actions
from usher.cli.app import App, Command, Number, WholeNumber, pass_app, run_service
from usher.cli.output import echo
from usher.cli.place import archive_option

if TYPE_CHECKING:
    from usher.object_store.address import StoreAddress

keep_option = archive_option()
front_option = click.option(
    "--front", default="", metavar="HOST:PORT", help="Address of the search page. [127.0.0.1:8400]"
)
jobs_option = click.option(
    "--jobs", is_flag=True, help="Also run a scheduler and a manager for tasks, feeds and jobs."
)

no_index_server_option = click.option(
    "--no-index-server",
    "index_server",
    flag_value=False,
    default=True,
    help="Without its own index server: row 1 is on OpenSearch, or on other machines.",
)


def then_option(default: str) -> Command:
    return click.option(
        "--then",
        type=click.Choice(["end", "serve"]),
        default=default,
        show_default=True,
        help="When done: end, or keep serving the search page.",
    )


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL…")
@click.option(
    "--delay",
    type=Number(0, 86_400),
    metavar="SECONDS",
    help="Delay between two requests to a host; stored for the host. [1, or that of its robots.txt]",
)
@click.option(
    "--max-pages",
    type=WholeNumber(1),
    help="Maximum number of pages per host; stored for the host. A higher one continues a crawl.",
)
@click.option(
    "--max-depth",
    type=WholeNumber(0, 30_000),
    help="Maximum clicks from the URL; stored for the host. A higher one continues a crawl.",
)
@click.option("--again", is_flag=True, help="Fetch pages again that are not due yet.")
@then_option("end")
@jobs_option
@keep_option
@front_option
@pass_app
def crawl(app: App, /, urls: tuple[str, ...], then: str, **options: Any) -> None:  # noqa: ANN401
    """Crawl a site and make it searchable, on this machine, with one command.

    Starts an embedded PostgreSQL and every role that a crawl needs, shows the progress, serves the
    search page meanwhile, and ends when every page is fetched and searchable. Ctrl-C finishes the
    requests in progress; the next run continues. Only hosts that you name are crawled.
    Jobs run only with --jobs.

    \b
    Examples:
      usher crawl https://example.com/
      usher crawl --then serve --delay 0.5 https://docs.example.com/
      usher crawl --again https://example.com/
    """
    from usher.local.crawl import LocalRunOptions

    given = LocalRunOptions(urls=urls, **options)
    run_service(app, actions.local.crawl(app, given, serve=then == "serve"))


@click.command()
@keep_option
@front_option
@no_index_server_option
@pass_app
def up(
    app: App, *, keep_warc: "Path | StoreAddress | None", front: str, index_server: bool
) -> None:
    """Run every role on this machine, with the search page, until stopped.

    Add pages with `usher add`, tasks or feeds. The settings come from usher.toml.

    \b
    Examples:
      usher up
      usher up --front 0.0.0.0:8400
      usher up --no-index-server
    """
    from usher.local.crawl import LocalRunOptions

    options = LocalRunOptions(
        keep_warc=keep_warc, front=front, jobs=True, index_server=index_server
    )
    run_service(app, actions.local.run_up(app, options))


@click.command()
@then_option("serve")
@jobs_option
@pass_app
def demo(app: App, then: str, *, jobs: bool) -> None:
    """Crawl a small site that comes with Usher, without a network, and serve its search page.

    Everything is stored in the directory DATA/demo, which can be deleted afterwards.

    \b
    Examples:
      usher demo
    """
    run_service(app, actions.local.run_demo(app, serve=then == "serve", jobs=jobs))


@click.command(hidden=True)
@click.argument("name")
@keep_option
@front_option
@jobs_option
@click.option("--skip-hosts", is_flag=True)
@no_index_server_option
@pass_app
def role_process(
    app: App,
    name: str,
    *,
    keep_warc: "Path | StoreAddress | None",
    front: str,
    jobs: bool,
    skip_hosts: bool,
    index_server: bool,
) -> None:
    """Run one process of the local stack; `usher up` starts these."""
    from usher.local.host_selection import read_skipped
    from usher.local.ports import Ports
    from usher.local.roles import ROLE_PROCESSES, RoleContext, run_process
    from usher.local.supervisor import LOG_DIRECTORY, LOG_SUFFIX

    if name not in ROLE_PROCESSES:
        raise click.BadParameter(f"one of {', '.join(ROLE_PROCESSES)}")
    data = app.settings.data
    skipped = read_skipped(data) if skip_hosts else ()
    context = RoleContext(
        app.loaded, Ports.read(data), keep_warc, front, jobs, skipped, index_server
    )
    log = data / LOG_DIRECTORY / f"{name}{LOG_SUFFIX}"
    run_service(app, run_process(name, context, ready=echo), own_log=log)
