"""`usher hosts`: list, register, change and recrawl hosts."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import click

from usher.cli import actions
from usher.cli.app import (
    App,
    Command,
    Number,
    WholeNumber,
    existing_file,
    json_option,
    limit_option,
    pass_app,
    run,
    with_options,
)
from usher.cli.help import HelpGroup

Policy = Literal["open", "paused", "blocked"]
POLICIES = get_args(Policy)
CRAWL_STATES = ("running", "resting", "paused", "blocked")
SCOPES = ("host", "domain", "listed", "any")
names_argument = click.argument("names", nargs=-1, required=True, metavar="HOST...")
DEFAULT = "default"  # restores the default of a cadence, delay or limit
MAX_PAGES, MAX_DEPTH = 2_000_000_000, 32_000
cadence_option = click.option(
    "--cadence", metavar="CADENCE", help="weekly, monthly …, or an interval such as 36h or 10d."
)


def or_default(number: WholeNumber | Number) -> Callable[[Any], float | str]:
    """A number or the word `default`."""
    return lambda text: DEFAULT if text == DEFAULT else number.convert(text, None, None)


def limit_options(*, unset: bool) -> Command:
    """The options for the limits of a host; `unset` accepts the word `default`."""
    pages, depth = WholeNumber(1, MAX_PAGES), WholeNumber(0, MAX_DEPTH)
    page_type: Any = or_default(pages) if unset else pages
    depth_type: Any = or_default(depth) if unset else depth
    return with_options(
        click.option("--max-pages", type=page_type, metavar="N", help="Maximum pages per host."),
        click.option(
            "--max-depth", type=depth_type, metavar="N", help="Maximum clicks from the start."
        ),
    )


filter_options = with_options(
    click.option(
        "--filters", "file", type=existing_file, help="A JSON file with a list of filters."
    ),
    click.option(
        "--filter", "single", multiple=True, metavar="JSON", help="A filter; may be repeated."
    ),
    click.option("--no-filters", is_flag=True, help="Remove all filters."),
)


@click.group(cls=HelpGroup)
def hosts() -> None:
    """List, register, change and recrawl hosts.

    \b
    Examples:
      usher hosts list --due
      usher hosts show www.nasa.gov
      usher hosts set www.nasa.gov --cadence weekly --scope domain
      usher hosts block spam.example --reason "only spam"
      usher hosts recrawl www.nasa.gov --pass
      usher hosts group shared one.example two.example --delay 2s
    """


@hosts.command(name="list")
@click.option("--policy", type=click.Choice(POLICIES), help="Only hosts with this policy.")
@click.option("--due", is_flag=True, help="Only hosts that are due or being crawled.")
@click.option("--contains", metavar="TEXT", help="Only names that contain this text.")
@click.option("--cadence", metavar="CADENCE", help="Only hosts with this cadence: weekly, 36h.")
@click.option("--reason", metavar="TEXT", help="Only with this text in the reason of the policy.")
@click.option("--under", metavar="NAME", help="Only hosts of this TLD (.gov) or domain (nasa.gov).")
@limit_option
@click.option("--after", default="", metavar="NAME", help="Start after this name.")
@json_option
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List hosts by name: number, clock, cadence and policy.

    \b
    Examples:
      usher hosts list --policy blocked
      usher hosts list --under .gov --due --limit 20
      usher hosts list --after www.nasa.gov
    """
    actions.hosts.list_hosts(app, **options)


@hosts.command()
@click.argument("host")
@json_option
@pass_app
def show(app: App, host: str, *, as_json: bool) -> None:
    """Show one host: number, clock, cadence, scope, limits, filters, and its pages by state.

    Also its crawl state: when it may be requested next and why not sooner, its robots.txt and
    sitemaps, and pages that are held back from removal (`usher hosts release`).
    Pages are counted up to 10,000 per state; more are shown as ≥ 10000.
    """
    actions.hosts_details.show_host_details(app, host, as_json=as_json)


@hosts.command()
@names_argument
@pass_app
def release(app: App, names: tuple[str, ...]) -> int:
    """Remove pages from the index that are gone, although they are a large part of their host.

    When more than a fifth of a host's pages are gone within a day, Usher holds them back until the
    operator confirms, because the host may be broken. Exit code 3 if no pages were held back.

    \b
    Examples:
      usher status
      usher hosts release www.nasa.gov
    """
    return 0 if run(actions.hosts.release_held_pages(app, names)) else 3


@hosts.command()
@names_argument
@cadence_option
@json_option
@pass_app
def add(app: App, names: tuple[str, ...], cadence: str | None, *, as_json: bool) -> None:
    """Register hosts, due now; registered hosts only get the cadence.

    \b
    Examples:
      usher hosts add www.nasa.gov science.nasa.gov --cadence weekly
    """
    actions.hosts.add_hosts(app, names, cadence, as_json=as_json)


@hosts.command(name="set")
@names_argument
@cadence_option
@click.option("--scope", type=click.Choice(SCOPES), help="Which new hosts its links may admit.")
@click.option(
    "--reach",
    multiple=True,
    metavar="NAME",
    help="For scope listed: a TLD (.gov), a domain (nasa.gov) or a host; may be repeated.",
)
@click.option(
    "--delay",
    "--crawl-delay",
    "crawl_delay",
    type=or_default(Number(0, 86_400)),
    metavar="SECONDS",
    help="Delay between two requests.",
)
@click.option("--adaptive/--no-adaptive", default=None, help="Adapt the cadence to each page.")
@click.option(
    "--allow-private/--no-allow-private",
    "private",
    default=None,
    help="Permit connections to a host that is not public, at its current addresses.",
)
@limit_options(unset=True)
@filter_options
@pass_app
def set_(app: App, /, names: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Change settings of hosts; of all of them, or of none if one is unknown.

    The word `default` restores the default of a cadence, delay or limit (`usher hosts rules`).
    The given filters replace all filters of the host. They add to the default filters and replace
    those of the same name; {"name": "media", "off": true} disables a default filter.

    \b
    Examples:
      usher hosts set www.nasa.gov --cadence 36h --delay 2
      usher hosts set www.nasa.gov --max-pages 50000 --max-depth default
      usher hosts set www.nasa.gov --reach .gov --reach esa.int
      usher hosts set http://wiki.internal:8080/ --allow-private
      usher hosts set www.nasa.gov --filter '{"name": "calendar", "rule": "path", "matches": "^/cal/"}'
    """
    given = [name for name, value in options.items() if value not in (None, ())]
    if given == ["no_filters"] and not options["no_filters"]:
        raise click.UsageError("Give an option to set; see usher hosts set --help.")
    if options["reach"] and options["scope"] not in (None, "listed"):
        raise click.UsageError("--reach requires --scope listed.")
    app.say(f"set for {', '.join(run(actions.hosts.change_hosts(app, names, **options)))}")


@hosts.command()
@names_argument
@filter_options
@json_option
@pass_app
def preview(app: App, /, names: tuple[str, ...], *, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Show how many known pages filters would reject; changes nothing.

    The filters replace those of the host, as with `usher hosts set`. It judges up to 100,000 pages
    of each host, for up to 2 seconds.

    \b
    Examples:
      usher hosts preview www.nasa.gov --filter '{"name": "calendar", "rule": "path", "matches": "^/cal/"}'
    """
    previews = run(actions.hosts.preview_filters(app, names, **options))
    actions.hosts.show_previews(app, previews, as_json=as_json)


@hosts.command()
@names_argument
@click.option("--reason", default="", help="Reason, shown with each refused URL.")
@pass_app
def block(app: App, names: tuple[str, ...], reason: str) -> None:
    """Refuse every URL of these hosts permanently; pages that already wait stay queued.

    Pages that are in the index stay searchable: the command says how many, and `usher remove HOST`
    removes them.

    \b
    Examples:
      usher hosts block spam.example --reason "only spam"
    """
    change_policy(app, names, "blocked", reason)


@hosts.command()
@names_argument
@click.option("--reason", default="", help="Reason, shown with each refused URL.")
@pass_app
def pause(app: App, names: tuple[str, ...], reason: str) -> None:
    """Refuse every URL of these hosts until `usher hosts open`."""
    change_policy(app, names, "paused", reason)


@hosts.command(name="open")
@names_argument
@pass_app
def open_(app: App, names: tuple[str, ...]) -> None:
    """Open blocked or paused hosts again."""
    change_policy(app, names, "open", "")


@hosts.command()
@click.option("--state", type=click.Choice(CRAWL_STATES), help="Only in this state.")
@click.option("--contains", metavar="TEXT", help="Only names that contain this text.")
@limit_option
@click.option("--after", default="", metavar="NAME", help="Start after this name.")
@json_option
@pass_app
def crawls(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List open crawls: pages that wait, are being fetched and are known, and a forecast of the end.

    \b
    Examples:
      usher hosts crawls
      usher hosts crawls --state resting
    """
    actions.hosts_crawls.list_crawls(app, **options)


@hosts.command()
@names_argument
@pass_app
def stop(app: App, names: tuple[str, ...]) -> None:
    """End the crawls of hosts: drop their waiting pages, up to 50,000.

    Pages that a crawler is fetching are completed. The next crawl is a cadence after the start of this one;
    `usher hosts recrawl` starts it at once.

    \b
    Examples:
      usher hosts stop www.nasa.gov
    """
    run(actions.hosts_crawls.stop_crawls(app, names))


def change_policy(app: App, names: tuple[str, ...], policy: Policy, reason: str) -> None:
    run(actions.hosts.set_policy(app, names, policy, reason))


@hosts.command()
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option("--pass", "hall_pass", is_flag=True, help="All pages, due or not.")
@click.option(
    "--due", is_flag=True, help="Every host and failed page that is due: the nightly recrawl."
)
@json_option
@pass_app
def recrawl(app: App, names: tuple[str, ...], *, hall_pass: bool, due: bool, as_json: bool) -> int:
    """Crawl whole hosts again: their root and every due page (with --pass every known page).

    Exit code 3 if all were refused.

    \b
    Examples:
      usher hosts recrawl www.nasa.gov --pass
      usher hosts recrawl --due
    """
    if bool(names) == due or (due and hall_pass):
        raise click.UsageError("Give hosts, with or without --pass, or only --due.")
    work = (
        actions.hosts.recrawl_due(app)
        if due
        else actions.hosts.recrawl_hosts(app, names, hall_pass=hall_pass)
    )
    refused = actions.hosts.show_recrawls(app, run(work), as_json=as_json)
    return 3 if refused else 0


@hosts.command()
@click.argument("name", metavar="GROUP")
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option(
    "--delay", metavar="DURATION", help="Delay after a request to any of them, such as 2s."
)
@pass_app
def group(app: App, name: str, names: tuple[str, ...], delay: str | None) -> None:
    """Group hosts on one server: one request at a time to all of them, with one shared delay.

    Creates the group if it is new; without hosts, only its delay changes. A host is in at most one group.

    \b
    Examples:
      usher hosts group wordpress one.example two.example --delay 2s
      usher hosts group wordpress --delay 5s
    """
    if not names and delay is None:
        raise click.UsageError("Give hosts, a --delay, or both.")
    joined = run(actions.hosts.join_group(app, name, names, delay))
    app.say(f"{name}: {', '.join(joined) or 'delay set'}")


@hosts.command()
@names_argument
@pass_app
def ungroup(app: App, names: tuple[str, ...]) -> None:
    """Remove hosts from their group."""
    app.say(f"ungrouped: {', '.join(run(actions.hosts.leave_group(app, names)))}")


@hosts.command()
@limit_option
@click.option("--after", default="", metavar="GROUP", help="Start after this name.")
@json_option
@pass_app
def groups(app: App, limit: int, after: str, *, as_json: bool) -> None:
    """List the groups of hosts that share a delay, with their first hosts.

    Hosts are counted up to 10,000; more are shown as ≥ 10000.
    """
    actions.hosts.list_groups(app, limit=limit, after=after, as_json=as_json)


@hosts.command()
@cadence_option
@limit_options(unset=False)
@filter_options
@json_option
@pass_app
def rules(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Show or set the default rules, which apply to hosts without their own.

    \b
    Examples:
      usher hosts rules
      usher hosts rules --cadence weekly --max-pages 100000
      usher hosts rules --filters filters.json
    """
    actions.hosts.show_rules(app, **options)
