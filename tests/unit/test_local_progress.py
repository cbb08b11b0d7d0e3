"""The progress of a crawl in words."""

from datetime import timedelta

from usher.cli.actions.local_progress import pace_lines
from usher.observe.crawl_progress import HostPaceView

NO_PAUSE = HostPaceView("127.0.0.1:8499", timedelta(), "host")
DEFAULT = HostPaceView("example.org", timedelta(seconds=1), "settings")
OF_GROUP = HostPaceView("example.org", timedelta(seconds=2.5), "group")


def test_the_pace_of_a_command_without_a_delay_option() -> None:
    """The demo has none, so the line names no option."""
    [line] = pace_lines([NO_PAUSE], has_delay_option=False)
    assert line.strip() == "127.0.0.1:8499: no pause between requests, set for this host"


def test_the_pace_names_the_option_that_changes_it() -> None:
    [line] = pace_lines([DEFAULT], has_delay_option=True)
    assert line.strip() == "example.org: 1 request/s, the default; change it with --delay"


def test_no_option_changes_the_pace_of_a_group() -> None:
    [line] = pace_lines([OF_GROUP], has_delay_option=True)
    assert line.strip() == "example.org: 1 request every 2.5 s, the limit of its group of hosts"


def test_the_slowest_of_many_hosts() -> None:
    """The first is the slowest; three are named."""
    [line] = pace_lines([DEFAULT, *[NO_PAUSE] * 4], has_delay_option=False)
    assert "example.org, 127.0.0.1:8499, 127.0.0.1:8499 and 2 more: 1 request/s" in line
    assert pace_lines([], has_delay_option=True) == []
