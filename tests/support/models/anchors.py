"""The rules of work.add_anchors and work.anchors_changed in Python, which tests compare with SQL."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from usher.anchor_text import MAX_ANCHORS_PER_PAGE, MAX_PAGES_PER_ANCHOR

SEEN_INTERVAL: Final = timedelta(days=7)


@dataclass(slots=True)
class StoredAnchor:
    seen_at: datetime
    own_pages: list[int] = field(default_factory=list)
    other_pages: list[int] = field(default_factory=list)

    @property
    def pages(self) -> set[int]:
        return {*self.own_pages, *self.other_pages}


def changed_much(inlinks: int, indexed: int) -> bool:
    few, many = sorted((inlinks, indexed))
    return many > 0 and many >= 2 * few


class AnchorModel:
    """The anchors of pages by page and text."""

    def __init__(self) -> None:
        self.anchors: dict[int, dict[str, StoredAnchor]] = defaultdict(dict)

    def add(self, links: Iterable[tuple[int, int, str, bool]], now: datetime) -> None:
        """Add (linked page, linking page, text, same host)."""
        given: dict[tuple[int, str, bool], set[int]] = defaultdict(set)
        for linked, linking, text, is_own in links:
            if linked != linking:
                given[linked, text, is_own].add(linking)
        for page in {page for page, _, _ in given}:
            texts = {text for linked, text, _ in given if linked == page}
            changed = [
                self._add(page, text, given[page, text, True], given[page, text, False], now)
                for text in texts
            ]
            if any(changed):
                self._trim(page)

    def inlinks(self, page: int) -> int:
        return len(set().union(*(anchor.pages for anchor in self.anchors[page].values())))

    def _add(self, page: int, text: str, own: set[int], other: set[int], now: datetime) -> bool:
        stored = self.anchors[page].get(text)
        is_new = stored is None
        if stored is None:
            stored = self.anchors[page][text] = StoredAnchor(now)
        gains = False
        for pages, new in ((stored.own_pages, own), (stored.other_pages, other)):
            room = MAX_PAGES_PER_ANCHOR - len(pages)
            added = sorted(new - set(pages))[:room]
            gains = gains or bool(added)
            pages.extend(added)
        is_old = stored.seen_at < now - SEEN_INTERVAL
        if gains or is_old:
            stored.seen_at = now
        return is_new or gains or is_old

    def _trim(self, page: int) -> None:
        texts = self.anchors[page]

        def rank(text: str) -> tuple[bool, int, float, str]:
            stored = texts[text]
            number = len(stored.own_pages) + len(stored.other_pages)
            return not stored.other_pages, -number, -stored.seen_at.timestamp(), text

        for text in sorted(texts, key=rank)[MAX_ANCHORS_PER_PAGE:]:
            del texts[text]
