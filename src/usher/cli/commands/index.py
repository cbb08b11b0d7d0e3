"""`usher builder` and `usher index-server` run on: the one makes index chunks, the other answers with them."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from usher.cli.app import App, pass_app, run_service
from usher.cli.output import echo

if TYPE_CHECKING:
    import asyncio

Service = Callable[["asyncio.Event"], Coroutine[Any, Any, None]]
mgmt_option = click.option(
    "--mgmt", metavar="URL", help="MGMT's address (also USHER_MGMT_URL).", default=None
)
host_option = click.option(
    "--host", default="", metavar="HOST:PORT", help="Where others reach it, if not there."
)


@click.command()
@mgmt_option
@click.option(
    "--bind",
    default="127.0.0.1:8431",
    show_default=True,
    metavar="HOST:PORT",
    help="Where index servers fetch what was built.",
)
@host_option
@click.option(
    "--chunks",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="Chunks at once.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=None,
    help="Processes that read pages; as many as there are cores unless told.",
)
@click.option("--insecure", is_flag=True, help="Serve files to other machines without a token.")
@pass_app
def builder(
    app: App,
    mgmt: str | None,
    bind: str,
    host: str,
    chunks: int,
    processes: int | None,
    *,
    insecure: bool,
) -> None:
    """Make index chunks of what was crawled, until told to stop; any number of builders may work.

    \b
    It pulls crawled chunks from their crawlers, takes their pages apart in processes of their
    own, which a hostile page may end without harm, and serves what it made to index servers
    until every row has it. TERM or Ctrl-C lets what is under way end.

    \b
    Examples:
      usher builder
      usher builder --mgmt http://10.0.0.1:8411 --bind 10.0.0.8:8431 --processes 4
    """
    from dataclasses import replace

    from usher.http.server.listen import read_bind
    from usher.index.build_pool import available_cores
    from usher.index.builder_service import BuilderOptions, run_builder

    settings = replace(app.settings, mgmt_url=mgmt) if mgmt else app.settings
    wish = BuilderOptions(
        bind=read_bind(bind),
        host=host,
        chunks=chunks,
        processes=processes or available_cores(),
        insecure=insecure,
    )
    run_until_stopped(app, lambda stop: run_builder(settings, wish, stop, ready=echo))


@click.command("index-server")
@click.option("--row", type=click.IntRange(1, 1000), help="Its row; without one, the shortest.")
@mgmt_option
@click.option(
    "--bind",
    default="127.0.0.1:8441",
    show_default=True,
    metavar="HOST:PORT",
    help="Where front-ends ask.",
)
@host_option
@click.option(
    "--weight",
    type=click.IntRange(1, 1000),
    default=None,
    help="How much of its row it takes, beside others; 1 unless told.",
)
@click.option("--insecure", is_flag=True, help="Answer other machines without a token.")
@pass_app
def index_server(
    app: App,
    row: int | None,
    mgmt: str | None,
    bind: str,
    host: str,
    weight: int | None,
    *,
    insecure: bool,
) -> None:
    """Hold a part of the index and answer searches, until told to stop.

    \b
    Servers of one row hold every chunk once, together; MGMT says which. Each pulls its chunks
    from builders or other servers, and keeps them over restarts. To take a server away for good,
    drain it first: `usher components drain HOST`.

    \b
    Examples:
      usher index-server --row 1
      usher index-server --row 2 --mgmt http://10.0.0.1:8411 --bind 10.0.0.9:8441
    """
    from dataclasses import replace

    from usher.http.server.listen import read_bind
    from usher.index.server import IndexServerOptions, run_index_server

    settings = replace(app.settings, mgmt_url=mgmt) if mgmt else app.settings
    wish = IndexServerOptions(
        bind=read_bind(bind), row=row, host=host, weight=weight, insecure=insecure
    )
    run_until_stopped(app, lambda stop: run_index_server(settings, wish, stop, ready=echo))


def run_until_stopped(app: App, actor: Service) -> None:
    """An actor until it is told to stop; told twice, it ends at once."""
    import asyncio

    from usher.shutdown import told_to_stop

    async def work() -> None:
        with told_to_stop() as (stop, now):
            task = asyncio.create_task(actor(stop))
            impatient = asyncio.create_task(now.wait())
            await asyncio.wait([task, impatient], return_when=asyncio.FIRST_COMPLETED)
            impatient.cancel()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, return_exceptions=now.is_set())

    run_service(app, work())
