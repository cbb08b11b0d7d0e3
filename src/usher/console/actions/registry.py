"""All actions by name, and the action or page for a command line, so that every advice becomes a button."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from usher.console.actions import cluster, hosts, matching_jobs, new_jobs, pages, queue, tasks
from usher.console.actions.action import ConsoleAction
from usher.console.page import ActionLink
from usher.errors import NotFound

ACTIONS: Final[Mapping[str, ConsoleAction]] = {
    action.name: action
    for part in (pages, hosts, queue, matching_jobs, new_jobs, tasks, cluster)
    for action in part.ACTIONS
}
# The first words of a command, and the action whose first field is the last word.
COMMAND_ACTIONS: Final[Mapping[tuple[str, ...], str]] = {
    ("add", "--pass"): "page-recrawl",
    ("add",): "page-recrawl",
    ("hosts", "open"): "host-open",
    ("remove", "--undo"): "removal-undo",
    ("chunks", "retry"): "chunk-retry",
    ("jobs", "pause"): "type-pause",
    ("jobs", "resume"): "type-resume",
    ("resources", "resume"): "resource-resume",
    ("components", "undrain"): "component-undrain",
}
# The same for pages; {} is the last word.
COMMAND_PAGES: Final[Mapping[tuple[str, ...], tuple[str, str]]] = {
    ("explain",): ("Explain", "/explain?url={}"),
    ("hosts", "show"): ("Host", "/hosts/{}"),
    ("chunks", "show"): ("Chunk", "/chunks/{}"),
    ("chunks", "list"): ("Chunks", "/chunks?stage=failed"),
    ("components", "show"): ("Component", "/components/{}"),
    ("components", "list"): ("Components", "/components"),
    ("components", "rows"): ("Components", "/components"),
    ("jobs", "list"): ("Jobs", "/jobs"),
    ("jobs", "log"): ("Failed jobs", "/jobs?show=log&state=permanent-error"),
    ("jobs", "show"): ("Job", "/jobs/{}"),
    ("jobs", "paused"): ("Jobs", "/jobs"),
    ("pages", "errors"): ("Failed pages", "/pages?state=error"),
    ("tasks", "list"): ("Tasks", "/tasks"),
    ("resources", "list"): ("Resources", "/tasks"),
}


def find_action(name: str) -> ConsoleAction:
    try:
        return ACTIONS[name]
    except KeyError:
        raise NotFound(f"There is no action {name[:40]!a}.", hint="/") from None


def link_of_command(command: str) -> ActionLink | None:
    """The action or page with the effect of a command line; None if the console has none."""
    try:
        program, *words = shlex.split(command)
    except ValueError:
        return None
    if program != "usher" or not words:
        return None
    return action_link(words) or page_link(words)


def action_link(words: Sequence[str]) -> ActionLink | None:
    for prefix, name in COMMAND_ACTIONS.items():
        if tuple(words[: len(prefix)]) == prefix and len(words) == len(prefix) + 1:
            action = ACTIONS[name]
            return action.link(**{action.fields[0].name: words[-1]})
    return None


def page_link(words: Sequence[str]) -> ActionLink | None:
    for prefix, (label, path) in COMMAND_PAGES.items():
        if tuple(words[: len(prefix)]) == prefix:
            return ActionLink(label, path.format(quote(words[-1], safe="")))
    return None
