"""Preview filters: how many known pages of a host they would reject, computed with the door's own rules."""

import time
from dataclasses import dataclass, field
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import filters, hosts
from usher.door.admin import FilterList, HostDetails
from usher.door.filters import CompiledFilters, FilterRefusal

store = load_statements(__file__)
PATHS_PER_BATCH: Final = 2_000
MAX_PATHS: Final = 100_000
MAX_SECONDS: Final = 2.0
MAX_EXAMPLES: Final = 5


@dataclass(slots=True)
class FilterPreview:
    """What proposed filters would change; `more` if not all known pages were judged.

    `rejected` pages pass the present filters and not the proposed ones, `waiting` are those of them in the queue,
    `passing` the opposite. The door would store `rewritten` pages under another path.
    """

    judged: int = 0
    rejected: int = 0
    waiting: int = 0
    passing: int = 0
    rewritten: int = 0
    more: bool = False
    examples: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """For people, such as: these filters would reject 1,204 of 51,300 known pages, 37 of them waiting."""
        pages = f"{'the first ' * self.more}{self.judged:,} known pages"
        words = f"These filters would reject {self.rejected:,} of {pages}, {self.waiting:,} of them waiting"
        if self.passing:
            words += f"; {self.passing:,} that the present filters reject would pass"
        if self.rewritten:
            words += f"; {self.rewritten:,} would be stored under another path"
        return f"{words}."

    def judge(
        self, path: str, present: CompiledFilters, proposed: CompiledFilters, *, waits: bool
    ) -> None:
        """Count one page."""
        before, after = present.apply(path), proposed.apply(path)
        self.judged += 1
        if isinstance(after, FilterRefusal) and not isinstance(before, FilterRefusal):
            self.rejected += 1
            self.waiting += waits
            if len(self.examples) < MAX_EXAMPLES:
                self.examples.append(f"{path} ({after.name}: {after.detail})")
        elif isinstance(before, FilterRefusal) and not isinstance(after, FilterRefusal):
            self.passing += 1
        elif isinstance(after, str) and after not in (path, before):
            self.rewritten += 1


async def preview_filters(
    conn: Connection, host: HostDetails, proposed: FilterList
) -> FilterPreview:
    """Judge the known pages of a host by its present and by the proposed filters; changes nothing.

    It stops after MAX_PATHS pages or MAX_SECONDS, because the patterns come from outside.
    """
    general = (await hosts.door_settings(conn)).filters
    present = filters.compile(filters.combine(general, host.filters))
    new = filters.compile(filters.combine(general, proposed))
    preview, after, deadline = FilterPreview(), "", time.monotonic() + MAX_SECONDS
    while rows := await store.known_paths.tuples(
        conn, domain64=host.domain64, after=after, n=PATHS_PER_BATCH
    ):
        for path, waits in rows:
            preview.judge(path, present, new, waits=waits)
            if time.monotonic() > deadline:
                preview.more = True
                return preview
        after = rows[-1][0]
        if preview.judged >= MAX_PATHS:
            preview.more = True
            return preview
    return preview
