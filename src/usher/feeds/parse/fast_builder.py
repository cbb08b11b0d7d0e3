"""Items and feeds in the making by the fast parser.

Comes from the kinds of elements; goes to the rules that finish drafts, once it is complete.
"""

from typing import Final

from usher.feeds.model import Author, Category, Image
from usher.feeds.parse.element_reader import UnprovenElement
from usher.feeds.parse.feed_builder import FeedBuilder
from usher.feeds.parse.feedparser_patches import MAX_CATEGORIES
from usher.feeds.parse.item_builder import ItemBuilder

_NO_LANGUAGES: Final = ("", "", "")


class FastItemBuilder(ItemBuilder):
    """An item in the making, and what decides between two elements that say the same; depths are from its own."""

    has_content = False
    titled = -1  # how deep the title is that no deeper one may replace
    title_at = summary_at = 99
    languages = _NO_LANGUAGES  # of the title, the summary and the first content
    contributors: tuple[Author, ...] = ()
    keywords: tuple[Category, ...] = ()

    replies = ""

    def speaks(self, part: int, language: str) -> None:
        if language or self.languages is not _NO_LANGUAGES:
            said = list(self.languages)
            said[part] = language
            self.languages = (said[0], said[1], said[2])

    def complete(self) -> None:
        if self.replies and not self.comments_count:
            self.comments_count = self.replies
        if self.contributors:
            self.authors += self.contributors
        if len(self.categories) >= MAX_CATEGORIES:
            raise UnprovenElement
        if self.keywords:
            self.categories += self.keywords
        if self.languages is not _NO_LANGUAGES and not self.language:
            self.language = next(filter(None, self.languages), "")


class FastFeedBuilder(FeedBuilder, FastItemBuilder):
    """A feed in the making."""

    icon = ""
    logo = ""
    generator_page = ""
    generator_agent = ""

    def complete(self) -> None:
        self.languages = _NO_LANGUAGES  # of its texts, which are not its own
        super().complete()
        self.generator = self.generator or self.generator_page or self.generator_agent
        self.images += [Image(self.image), Image(self.logo, "logo"), Image(self.icon, "icon")]
