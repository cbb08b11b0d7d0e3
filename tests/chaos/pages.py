"""The pages of the web site: a word for each page that no other page has, and text around it."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

HOSTS = tuple(f"10.77.1.{number}" for number in range(1, 9))
# Pages of a host that its start page links to; the rest is added during the run.
FIRST_PAGES = int(os.environ.get("CHAOS_FIRST_PAGES", "25"))
EDITION_SECONDS = 60
SYLLABLES = tuple(a + b for a in "bdfkm" for b in "aeiou")
FILLER_WORDS = 120


@dataclass(frozen=True, slots=True)
class Page:
    host: str
    number: int

    @property
    def path(self) -> str:
        return f"/page/{self.number}"

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"

    @property
    def word(self) -> str:
        """The word that only this page has, in every edition."""
        return f"zq{letters(HOSTS.index(self.host) * 10_000 + self.number)}"

    @property
    def changes(self) -> bool:
        """Whether its text is another one in each edition."""
        return self.number % 3 == 0

    def text(self, edition: int) -> str:
        """The page as HTML. The filler differs from page to page, so that no page is a copy of another."""
        dice = random.Random(f"{self.url} {edition if self.changes else 0}")  # noqa: S311
        filler = " ".join(word(dice) for _ in range(FILLER_WORDS))
        return f"<title>Page {self.word}</title><p>{self.word} {filler}</p>"


def word(dice: random.Random) -> str:
    return "".join(dice.choice(SYLLABLES) for _ in range(3))


def letters(number: int) -> str:
    """A number as letters, with a fixed length."""
    digits = f"{number:06d}"
    return "".join("abcdefghij"[int(digit)] for digit in digits)


def first_pages() -> list[Page]:
    return [Page(host, number) for host in HOSTS for number in range(1, FIRST_PAGES + 1)]


def later_pages() -> Iterator[Page]:
    """Pages to add during the run, one host after the other, without end."""
    number = FIRST_PAGES
    while True:
        number += 1
        for host in HOSTS:
            yield Page(host, number)


def start_page(host: str) -> str:
    links = "".join(
        f'<a href="{Page(host, number).path}">{number}</a> ' for number in range(1, FIRST_PAGES + 1)
    )
    return f"<title>Start of {host}</title><p>start {links}</p>"
