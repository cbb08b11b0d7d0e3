"""`usher mgmt`, `usher manager` and `usher scheduler`: services that run until stopped."""

from collections.abc import Coroutine
from typing import Any

import click

from usher.cli.app import App, WholeNumber, announce, bind_option, pass_app, run_service

metrics_option = click.option(
    "--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at http://HOST:PORT/metrics."
)


@click.command()
@bind_option("127.0.0.1:8411", "Address to listen on; port 0 selects a free port.")
@click.option("--insecure", is_flag=True, help="Accept other machines and names without tokens.")
@pass_app
def mgmt(app: App, bind: str, *, insecure: bool) -> None:
    """Serve the HTTP API until stopped; prints its address when it is ready.

    TERM or Ctrl-C finishes the requests in progress; a second one stops immediately.

    \b
    Examples:
      usher mgmt
      usher mgmt --bind 127.0.0.1:0
      curl -d '{"urls": ["https://example.com/"]}' http://127.0.0.1:8411/v1/knock
    """
    from usher.api.server import serve
    from usher.console.endpoints import console_and_feeds
    from usher.http.server.listen import read_bind
    from usher.queue.policy import read_policies

    address, rules = read_bind(bind), read_policies(app.loaded.workers)
    options: dict[str, Any] = {"insecure": insecure, "rules": rules, "ready": announce}
    run_service(
        app, serve(app.settings, address, extra_endpoints=console_and_feeds(app.loaded), **options)
    )


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
    help="Name of this machine in host rules. [its host name]",
)
@click.option("--max", "limit", type=WholeNumber(1), help="Maximum number of job processes.")
@metrics_option
@pass_app
def manager(
    app: App, types: tuple[str, ...], host: str, limit: int | None, metrics: str | None
) -> None:
    """Run jobs on this machine until stopped; several managers may run.

    TERM or Ctrl-C waits for running jobs; a second one stops them and returns them to the queue.
    [worker.TYPE] in usher.toml sets how many jobs of a type run at once, their time limit and retries.

    \b
    Examples:
      usher manager
      usher manager --type fetch --type clean --max 20
    """
    from usher.queue.service import QueueServiceOptions, run_manager

    options = QueueServiceOptions(host, frozenset(types), limit)
    run_service(app, with_metrics(metrics, run_manager(app.loaded, options, ready=announce)))


@click.command()
@metrics_option
@pass_app
def scheduler(app: App, metrics: str | None) -> None:
    """Create the jobs of tasks when they are due, until stopped.

    Also retries jobs that failed and jobs whose machine died. Several may run: one is active, and
    another takes over when it ends.

    \b
    Examples:
      usher scheduler
    """
    from usher.queue.service import run_scheduler

    run_service(app, with_metrics(metrics, run_scheduler(app.settings, ready=announce)))


async def with_metrics(address: str | None, work: Coroutine[Any, Any, None]) -> None:
    """Run a service and serve its metrics at /metrics until it ends."""
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
        work.close()  # avoids a warning of Python if the address is unusable and the work never ran
