"""`usher watchdog`: checks the health of all components until stopped."""

from datetime import timedelta

import click

from usher.cli.app import App, announce, pass_app, range_option, run_service
from usher.cli.commands.services import metrics_option, with_metrics


@click.command()
@range_option("--every", 5.0, 0.1, 3600, "Interval between two pings of a component.", "SECONDS")
@range_option("--misses", 3, 1, 1000, "Missed pings that count as a failure.", "N")
@range_option(
    "--probation", 60.0, 0, 86_400, "How long a recovered component is on probation.", "SECONDS"
)
@range_option(
    "--grace", 300.0, 0, 30 * 86_400, "How long a failure lasts before others take over.", "SECONDS"
)
@metrics_option
@pass_app
def watchdog(
    app: App, every: float, misses: int, probation: float, grace: float, metrics: str | None
) -> None:
    """Ping every component and reassign the chunks of failed ones, until stopped.

    Also ends expired leases and places every chunk in every row, so at least one should always run.
    Several may run: one is active, and another takes over when it ends.

    \b
    Examples:
      usher watchdog
      usher watchdog --every 2 --grace 60
    """
    from usher.mgmt.health import HealthLimits
    from usher.mgmt.watchdog_service import watch

    limits = HealthLimits(misses, timedelta(seconds=probation), timedelta(seconds=grace))
    work = watch(app.settings, ready=announce, tick=every, limits=limits)
    run_service(app, with_metrics(metrics, work))
