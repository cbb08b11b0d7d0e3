"""Drops, counts and reports documents of pages that do not belong to a chunk.

A hostile crawler or builder may write anything into its file. MGMT knows the keys of the pages that the chunk was
given. What a file says about one of these pages cannot be checked here.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from usher.crawl.page.pdf import MAX_PAGES
from usher.index.document import IndexDocument
from usher.messages.components import ForeignPages

MAX_EXAMPLES: Final = 3
MAX_EXAMPLE_CHARACTERS: Final = 200
PDF_PAGE: Final = re.compile(r"page=([1-9][0-9]{0,2})")


class PageFilter:
    """Passes the documents of a chunk's pages, each URL once, and counts the others."""

    def __init__(self, chunk: int, keys: Iterable[str], textless_keys: Iterable[str] = ()) -> None:
        self.chunk = chunk
        self.keys = frozenset(keys)
        self.textless_keys = frozenset(textless_keys)
        self.textless = 0
        self.foreign = 0
        self.examples: list[str] = []
        self._urls: set[str] = set()

    def has(self, key: str, url: str) -> bool:
        """Whether the chunk has a text of this page; other pages are counted as textless or foreign."""
        if key in self.keys:
            return True
        if key in self.textless_keys:
            self.textless += 1
        else:
            self._reject(url)
        return False

    def passed(self, documents: Iterable[IndexDocument]) -> Iterator[IndexDocument]:
        """The documents of the chunk's pages; of several with the same URL the first."""
        for document in documents:
            key, url = document.key, document.url
            if key in self.keys and (url in self._urls or not is_consistent(document)):
                self._reject(url)
            elif self.has(key, url):
                self._urls.add(url)
                yield document

    @property
    def report(self) -> ForeignPages | None:
        """The report for MGMT; None if no page was foreign."""
        return ForeignPages(self.chunk, self.foreign, self.examples) if self.foreign else None

    def _reject(self, url: str) -> None:
        self.foreign += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(url[:MAX_EXAMPLE_CHARACTERS])


def is_consistent(document: IndexDocument) -> bool:
    """Whether host and URL match the document's key; the pages of a PDF add `#page=N`."""
    key = document.key
    address, hash_, fragment = document.url.partition("#")
    if address not in (f"https://{key}", f"http://{key}") or key.partition("/")[0] != document.host:
        return False
    page = PDF_PAGE.fullmatch(fragment)
    return not hash_ or (page is not None and int(page[1]) <= MAX_PAGES)
