"""Builders of the fast parser, which decide as feedparser does when elements compete for a field."""

from typing import Final

from usher.feeds.model import Author, Category, Image
from usher.feeds.parse.element_reader import UnprovenElement
from usher.feeds.parse.feed_builder import FeedBuilder
from usher.feeds.parse.feedparser_patches import MAX_CATEGORIES
from usher.feeds.parse.item_builder import ItemBuilder

_NO_LANGUAGES: Final = ("", "", "")


class FastItemBuilder(ItemBuilder):
    """An item; depths are relative to it."""

    has_content = False
    titled = -1  # the depth of the title that no deeper one replaces
    title_at = summary_at = 99
    languages = _NO_LANGUAGES  # of the title, the summary and the first content
    contributors: tuple[Author, ...] = ()
    keywords: tuple[Category, ...] = ()

    replies = ""

    def set_language(self, part: int, language: str) -> None:
        if language or self.languages is not _NO_LANGUAGES:
            languages = list(self.languages)
            languages[part] = language
            self.languages = (languages[0], languages[1], languages[2])

    def complete(self) -> None:
        """Combine the fields; UnprovenElement if feedparser would cut the categories."""
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
    """A feed."""

    icon = ""
    logo = ""
    generator_page = ""
    generator_agent = ""

    def complete(self) -> None:
        self.languages = _NO_LANGUAGES  # the languages of its texts do not count for the feed
        super().complete()
        self.generator = self.generator or self.generator_page or self.generator_agent
        self.images += [Image(self.image), Image(self.logo, "logo"), Image(self.icon, "icon")]
