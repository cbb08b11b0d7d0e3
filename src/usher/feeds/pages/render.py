"""Pages of feeds and items as HTML: made on the server, escaped by the templates, of use without a script.

Comes from what `pages_look` gathered; goes to browsers.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from usher.errors import UsherError
from usher.feeds.pages import atom, sparkline
from usher.feeds.pages import wording as words
from usher.feeds.pages.landing_page import LandingPage
from usher.feeds.pages.messages import (
    FeedDetail,
    FeedList,
    FeedsQuery,
    ItemDetail,
    ItemList,
    ItemsQuery,
)
from usher.search import assets
from usher.search.assets import Asset

HERE: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


def load_assets() -> dict[str, Asset]:
    """The files that pages need: those of the search page, and our own."""
    own = sorted(file for file in (HERE / "static").iterdir() if file.suffix in assets.TYPES)
    return {**assets.load_assets(), **assets.name_by_digest(own)}


class FeedPages:
    """Templates, read once."""

    def __init__(self, files: Mapping[str, Asset]) -> None:
        self._made = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=printable,
        )
        self._made.filters.update(
            day=words.day,
            distance=words.distance,
            file=words.file,
            host=words.host,
            moment=words.moment,
            paragraphs=words.paragraphs,
            plainly=lambda said: words.line(said, "text/html", most=500),
            size=words.size,
            span=lambda seconds: words.span(timedelta(seconds=seconds)),
        )
        self._made.tests["link"] = words.is_link
        self._made.globals.update(
            assets={name: one.path for name, one in files.items()},
            bars=sparkline.bars,
            drawn=(sparkline.WIDTH, sparkline.HEIGHT),
            feeds_at=feeds_url,
            items_at=items_url,
            spoken=sparkline.describe,
        )

    def feeds(self, found: FeedList, query: FeedsQuery, tags: list[str], now: datetime) -> str:
        return self._render("feeds.html", found=found, query=query, tags=tags, now=now)

    def feed(self, found: FeedDetail, now: datetime) -> str:
        return self._render("feed.html", found=found, now=now)

    def items(self, found: ItemList, query: ItemsQuery, now: datetime) -> str:
        more = {
            "atom": atom.address(query, after=""),
            "heading": atom.title(query, found),
            "next": atom.address(query, path="/items", after=found.after or ""),
        }
        return self._render("items.html", found=found, query=query, now=now, **more)

    def item(self, found: ItemDetail, now: datetime) -> str:
        return self._render("item.html", found=found, now=now)

    def home(self, home: LandingPage) -> str:
        return self._render("home.html", home=home)

    def trouble(self, error: UsherError) -> str:
        return self._render("trouble.html", error=error)

    def _render(self, template: str, **given: Any) -> str:  # noqa: ANN401 - what the template shows
        return self._made.get_template(template).render(**given)


def printable(value: object) -> object:
    """What is shown, whatever it is: no text from outside rearranges the page."""
    from_outside = isinstance(value, str) and not hasattr(value, "__html__")
    return words.visible(str(value)) if from_outside else value


def feeds_url(query: FeedsQuery | None = None, **changed: object) -> str:
    """Where a list of feeds is."""
    asked = FeedsQuery() if query is None else query
    said = {"show": asked.show, "tag": asked.tag, "contains": asked.contains, "after": 0, **changed}
    usual = {"show": "all", "after": 0}
    left = {name: value for name, value in said.items() if value and value != usual.get(name)}
    return f"/feeds?{urlencode(left, errors='replace')}" if left else "/feeds"


def items_url(**asked: object) -> str:
    """Where a list of items is."""
    return f"/items?{urlencode(asked, errors='replace')}"
