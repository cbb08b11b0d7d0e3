"""`usher watchdog`: checks the health of all components until stopped."""

from datetime import timedelta

import click

from usher.cli.app import App, pass_app, run_service
from usher.cli.commands.services import metrics_option, with_metrics
from usher.cli.output import echo

MIN_SECONDS = 0.1  # seconds


@click.command()
@click.option(
    "--every",
    type=click.FloatRange(MIN_SECONDS, 3600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Interval between two pings of a component.",
)
@click.option(
    "--misses",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="Missed pings that count as a failure.",
)
@click.option(
    "--probation",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a recovered component stays on probation.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 30 * 86_400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a failure may last before others take over.",
)
@metrics_option
@pass_app
def watchdog(
    app: App, every: float, misses: int, probation: float, grace: float, metrics: str | None
) -> None:
    """Ping every component and reassign the chunks of failed ones, until stopped.

    \b
    Also ends expired leases and places every chunk in every row, so at least one should always run.
    Several may run: one is active, and another takes over when it ends.

    \b
    Examples:
      usher watchdog
      usher watchdog --every 2 --grace 60
    """
    from usher.mgmt.health import HealthLimits
    from usher.mgmt.watchdog import watch

    limits = HealthLimits(misses, timedelta(seconds=probation), timedelta(seconds=grace))
    work = watch(app.settings, ready=echo, tick=every, limits=limits)
    run_service(app, with_metrics(metrics, work))
