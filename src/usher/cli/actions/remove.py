"""`usher remove`: remove pages, list removals and undo them."""

import getpass
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, Final

from usher.cli.app import App, confirm, run, show_json, show_list
from usher.cli.area_access import call_in, checked_transaction
from usher.cli.door_access import door_transaction, open_door
from usher.cli.output import display_time, echo
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door import removals
from usher.door.removals import MAX_PAGES_COUNTED, Removal, RemovalPreview
from usher.errors import NotFound
from usher.removal_rules import RemovalTarget, parse_target
from usher.wording import capped_count, counted, json_fields, printable, relative_time

MANY_PAGES: Final = 100  # from so many on a removal needs a confirmation
MAX_TARGET_CHARACTERS: Final = 2_300
MAX_REASON_CHARACTERS: Final = 60  # in a table
NOT_PURGED: Final = (
    "WARC files in an archive (--keep-warc)",
    "items of feeds with these addresses",
    "backups of the database",
)


@dataclass(frozen=True, slots=True)
class PreviewedTarget:
    """A target, and what it covers now."""

    target: RemovalTarget
    seen: RemovalPreview

    @property
    def needs_confirmation(self) -> bool:
        return self.target.kind in ("host", "domain") or self.seen.pages >= MANY_PAGES

    @property
    def text(self) -> str:
        return printable(self.target.text, MAX_TARGET_CHARACTERS)

    @property
    def counts(self) -> str:
        pages = f"{capped_count(self.seen.pages, MAX_PAGES_COUNTED)} known pages"
        if self.seen.pages < MAX_PAGES_COUNTED:
            pages = counted(self.seen.pages, "known page")
        return f"{pages}, {self.seen.searchable:,} of them searchable"


async def preview_targets(app: App, given: Sequence[str]) -> list[PreviewedTarget]:
    targets = {target.text: target for target in map(parse_target, given)}.values()
    async with door_transaction(app) as conn:
        resolved = [await removals.resolve(conn, target) for target in targets]
        return [
            PreviewedTarget(target, await removals.preview(conn, target)) for target in resolved
        ]


def show_preview(app: App, given: Sequence[str], *, as_json: bool) -> None:
    previewed = run(preview_targets(app, given))
    if as_json:
        show_json([preview_json(part) for part in previewed])
        return
    for part in previewed:
        echo(f"{part.text}: {part.counts}")
        for key in part.seen.examples:
            echo(f"  {printable(key, MAX_TARGET_CHARACTERS)}")
        warn_of_rest(app, part)
    app.say("Nothing was changed.")


def remove_pages(
    app: App, given: Sequence[str], reason: str, author: str, *, yes: bool, as_json: bool
) -> None:
    """Show what the targets cover, ask if it is much, and remove all of them in one transaction."""
    previewed = run(preview_targets(app, given))
    if any(part.needs_confirmation for part in previewed):
        covered = "; ".join(f"{part.text} ({part.counts})" for part in previewed)
        confirm(f"Remove {covered}?", yes=yes)
    numbers = run(store_removals(app, previewed, reason, author or user_name()))
    if as_json:
        both = zip(previewed, numbers, strict=True)
        show_json([{**preview_json(part), "removal": number} for part, number in both])
        return
    for part, number in zip(previewed, numbers, strict=True):
        label = "removed" if number is not None else "already removed"
        echo(f"{label}: {part.text} ({part.counts})")
        warn_of_rest(app, part)
    app.say("Search pages hide them within 2 seconds, and no crawler fetches them again.")
    app.say("While Usher runs, it deletes their text from the index and from chunk files.")
    app.say(f"Not changed: {', '.join(NOT_PURGED)}.")
    app.say("  → usher explain URL  says how far it is; usher remove --undo TARGET  reverses it")


def warn_of_rest(app: App, part: PreviewedTarget) -> None:
    """Name what stays searchable although it may belong to the removal."""
    if part.seen.same_texts:
        app.say("  These pages have the same text and are not removed:")
        for key in part.seen.same_texts:
            app.say(f"    {printable(key, MAX_TARGET_CHARACTERS)}")
    if part.seen.other_hosts:
        names = ", ".join(map(printable, part.seen.other_hosts))
        app.say(f"  Not covered: {names}. A domain with its subdomains is *.DOMAIN.")


async def store_removals(
    app: App, previewed: Sequence[PreviewedTarget], reason: str, author: str
) -> list[int | None]:
    async with open_door(app) as doorkeeper, checked_transaction(doorkeeper.db) as conn:
        now = await server_time(conn)
        return [
            await removals.add_removal(conn, part.target, reason=reason, author=author, now=now)
            for part in previewed
        ]


def preview_json(part: PreviewedTarget) -> dict[str, Any]:
    return {
        "target": part.target.text,
        "kind": part.target.kind,
        **asdict(part.seen),
        "not_purged": list(NOT_PURGED),
    }


def undo_removals(app: App, given: Sequence[str], author: str, *, as_json: bool) -> None:
    targets = [parse_target(text) for text in given]
    numbers = call_in(door_transaction(app), undo_all, targets, author or user_name())
    if as_json:
        both = zip(targets, numbers, strict=True)
        show_json([{"target": target.text, "removal": number} for target, number in both])
        return
    for target in targets:
        echo(f"undone: {printable(target.text, MAX_TARGET_CHARACTERS)}")
    app.say("Pages whose text is still in the index are searchable again within 2 seconds.")
    app.say("While Usher runs, it crawls and indexes the other pages again.")
    app.say("  → usher explain URL")


async def undo_all(conn: Connection, targets: Sequence[RemovalTarget], author: str) -> list[int]:
    """Undo all removals, or none if one of the targets is not removed."""
    now, numbers = await server_time(conn), []
    for target in targets:
        number = await removals.undo_removal(conn, target, author=author, now=now)
        if number is None:
            raise await not_removed(conn, target)
        numbers.append(number)
    return numbers


async def not_removed(conn: Connection, target: RemovalTarget) -> NotFound:
    """The error for a target, with the removal that covers it as its hint, if there is one."""
    path = target.rule.prefix or target.rule.paths[0]
    covering = await removals.removals_of_page(conn, host=target.rule.host, path=path)
    hint = f"usher remove --undo {quote(covering[0].target)}" if covering else "usher remove --list"
    also = ", but another removal covers it" if covering else ""
    return NotFound(f"There is no removal of {target.text}{also}.", hint=hint)


def list_removals(
    app: App,
    *,
    before: int | None,
    everything: bool,
    contains: str | None,
    limit: int,
    as_json: bool,
) -> None:
    listed = call_in(
        door_transaction(app),
        removals.list_removals,
        before=before,
        undone=everything,
        contains=contains,
        n=limit,
    )
    now = display_time()
    rows = [
        (
            removal.id,
            relative_time(removal.removed_at, now),
            printable(removal.removed_by),
            state_text(removal),
            printable(removal.reason, MAX_REASON_CHARACTERS),
            printable(removal.target, MAX_TARGET_CHARACTERS),
        )
        for removal in listed
    ]
    headings = ("ID", "REMOVED", "BY", "STATE", "REASON", "TARGET")
    show_list(
        app, listed, headings, rows, as_json=as_json, to_json=lambda row: json_fields(asdict(row))
    )
    if len(listed) >= limit and not as_json:
        app.say(f"  → more may follow: --before {listed[-1].id}")


def state_text(removal: Removal) -> str:
    if removal.undone_at:
        return f"undone by {printable(removal.undone_by or '')}"
    return f"{counted(removal.pages, 'page')} removed" if removal.swept_at else "in progress"


def user_name() -> str:
    """The name of this user and this machine, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
