"""`usher builder` builds index chunks; `usher index-server` answers searches with them."""

from typing import Any

import click

from usher.cli.app import (
    App,
    WholeNumber,
    announce,
    bind_option,
    host_option,
    mgmt_option,
    pass_app,
    range_option,
    run_until_stopped,
)


@click.command()
@mgmt_option
@bind_option("127.0.0.1:8431", "Address where index servers download index chunks.")
@host_option
@range_option("--chunks", 4, 1, 1000, "Chunks at once.")
@click.option(
    "--processes", type=WholeNumber(1, 256), help="Processes that parse pages. [number of cores]"
)
@click.option("--insecure", is_flag=True, help="Serve files to other machines without a token.")
@pass_app
def builder(
    app: App,
    /,
    *,
    mgmt: str | None,
    bind: str,
    processes: int | None,
    **options: Any,  # noqa: ANN401 - as click read them
) -> None:
    """Build index chunks from crawled chunks until stopped; several builders may run.

    Downloads crawled chunks from their crawlers and parses the pages in separate processes, which a
    hostile page may crash without harm. Serves index chunks to index servers until every row has
    them. TERM or Ctrl-C finishes the chunks in progress.

    \b
    Examples:
      usher builder
      usher builder --mgmt http://10.0.0.1:8411 --bind 10.0.0.8:8431 --processes 4
    """
    from usher.http.server.listen import read_bind
    from usher.index.build_pool import available_cores
    from usher.index.builder_service import BuilderOptions, run_builder

    settings, cores = app.settings_for(mgmt), processes or available_cores()
    given = BuilderOptions(bind=read_bind(bind), processes=cores, **options)
    run_until_stopped(app, lambda stop: run_builder(settings, given, stop, ready=announce))


@click.command("index-server")
@click.option("--row", type=WholeNumber(1, 1000), help="Its row. [the row with fewest servers]")
@mgmt_option
@bind_option("127.0.0.1:8441", "Address where front-ends query it.")
@host_option
@click.option("--weight", type=WholeNumber(1, 1000), help="Its share of the row's chunks. [1]")
@click.option("--insecure", is_flag=True, help="Answer other machines without a token.")
@click.option(
    "--engine",
    type=click.Choice(["tantivy", "opensearch"]),
    help="Where the index is: in its own directory, or in a cluster. [USHER_ENGINE, or tantivy]",
)
@click.option(
    "--engine-url", metavar="URL,...", help="Nodes of the OpenSearch cluster. [USHER_ENGINE_URL]"
)
@pass_app
def index_server(
    app: App,
    /,
    *,
    mgmt: str | None,
    bind: str,
    engine: str | None,
    engine_url: str | None,
    **options: Any,  # noqa: ANN401 - as click read them
) -> None:
    """Hold a part of the index and answer searches until stopped.

    The servers of one row together hold every chunk once; MGMT assigns the chunks. Each server
    downloads its chunks from builders or other servers and keeps them across restarts. Before you
    remove a server for good, drain it: `usher components drain HOST`.

    With --engine opensearch the index of the row is in an OpenSearch cluster, which is the only
    server of the row. The settings engine_* name its credential, certificate and shards.

    \b
    Examples:
      usher index-server --row 1
      usher index-server --row 2 --mgmt http://10.0.0.1:8411 --bind 10.0.0.9:8441
      usher index-server --row 2 --engine opensearch --engine-url https://10.0.0.20:9200
    """
    from usher.http.server.listen import read_bind
    from usher.index.server import IndexServerOptions, run_index_server

    changes = {"engine": engine, "engine_url": engine_url}
    settings = app.settings_for(mgmt, **{name: text for name, text in changes.items() if text})
    given = IndexServerOptions(bind=read_bind(bind), **options)
    run_until_stopped(app, lambda stop: run_index_server(settings, given, stop, ready=announce))
