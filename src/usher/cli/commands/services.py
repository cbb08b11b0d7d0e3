"""Commands that run on: MGMT, managers, schedulers."""

from collections.abc import Coroutine
from typing import Any

import click

from usher.cli.app import App, pass_app, run_service
from usher.cli.output import echo

metrics_option = click.option(
    "--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at http://HOST:PORT/metrics."
)


@click.command()
@click.option(
    "--bind",
    default="127.0.0.1:8411",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes any that is free.",
)
@click.option("--insecure", is_flag=True, help="Let other machines and names in without tokens.")
@pass_app
def mgmt(app: App, bind: str, *, insecure: bool) -> None:
    """Serve the HTTP API until told to stop; prints its address when it is ready.

    \b
    TERM or Ctrl-C lets requests under way end and leaves with exit code 0; a second one stops now.

    \b
    Examples:
      usher mgmt
      usher mgmt --bind 127.0.0.1:0
      curl -d '{"urls": ["https://example.com/"]}' http://127.0.0.1:8411/v1/knock
    """
    from usher.api.server import serve
    from usher.feeds.pages.endpoints import feed_endpoints
    from usher.http.server.listen import read_bind
    from usher.queue.policy import policies

    where, rules = read_bind(bind), policies(app.loaded.workers)
    served = serve(
        app.settings, where, insecure=insecure, ready=echo, rules=rules, annex=feed_endpoints
    )
    run_service(app, served)


@click.command()
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Run only jobs of this type; may be repeated.",
)
@click.option(
    "--host",
    default="",
    metavar="NAME",
    help="This machine's name in host rules, instead of its own.",
)
@click.option(
    "--max", "most", type=click.IntRange(1), help="At most so many processes of all types together."
)
@metrics_option
@pass_app
def manager(
    app: App, types: tuple[str, ...], host: str, most: int | None, metrics: str | None
) -> None:
    """Run jobs on this machine until told to stop; any number of managers may work.

    \b
    TERM or Ctrl-C lets running jobs end; a second one stops them and gives them back.
    How many run at once, for how long and how often is set by [worker.TYPE] in usher.toml.

    \b
    Examples:
      usher manager
      usher manager --type fetch --type clean --max 20
    """
    from usher.queue.service import QueueServiceOptions, manage

    wish = QueueServiceOptions(host, frozenset(types), most)
    run_service(app, with_metrics(metrics, manage(app.loaded, wish, ready=echo)))


@click.command()
@metrics_option
@pass_app
def scheduler(app: App, metrics: str | None) -> None:
    """Make jobs of tasks when their time comes, until told to stop.

    \b
    It also brings back jobs that failed and jobs whose machine died. Several may run: one leads,
    and another takes over when it is gone.

    \b
    Examples:
      usher scheduler
    """
    from usher.queue.service import schedule

    run_service(app, with_metrics(metrics, schedule(app.settings, ready=echo)))


async def with_metrics(address: str | None, work: Coroutine[Any, Any, None]) -> None:
    """Serve metrics at /metrics, with the limits that all our HTTP servers have, until the work ends."""
    try:
        if address is None:
            await work
            return
        from usher.http.server.component import component_app
        from usher.http.server.listen import read_bind, serve_app

        bind = read_bind(address)
        app = component_app([], any_name=not bind.loopback)
        async with serve_app(app, bind):
            await work
    finally:
        work.close()  # or Python warns that it never ran, where the address cannot be used
