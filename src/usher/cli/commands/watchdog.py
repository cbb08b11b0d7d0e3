"""`usher watchdog`: checks the health of all components until stopped."""

from datetime import timedelta

import click

from usher.cli.app import App, Command, pass_app, run_service
from usher.cli.commands.services import metrics_option, with_metrics
from usher.cli.output import echo

MIN_SECONDS = 0.1


def seconds_option(name: str, default: float, low: float, high: float, text: str) -> Command:
    limits = click.FloatRange(low, high)
    return click.option(
        name, type=limits, default=default, show_default=True, metavar="SECONDS", help=text
    )


@click.command()
@seconds_option("--every", 5.0, MIN_SECONDS, 3600, "Interval between two pings of a component.")
@click.option(
    "--misses",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="Missed pings that count as a failure.",
)
@seconds_option("--probation", 60.0, 0, 86_400, "How long a recovered component is on probation.")
@seconds_option(
    "--grace", 300.0, 0, 30 * 86_400, "How long a failure lasts before others take over."
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
