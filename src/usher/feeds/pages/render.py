"""Renders the pages of feeds and items as HTML, which works without scripts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from usher.errors import UsherError
from usher.feeds.pages import atom, sparkline
from usher.feeds.pages import wording as words
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
    """The static files of the search page and our own."""
    own = sorted(file for file in (HERE / "static").iterdir() if file.suffix in assets.TYPES)
    return {**assets.load_assets(), **assets.name_by_digest(own)}


class FeedPages:
    """The templates, loaded once."""

    def __init__(self, files: Mapping[str, Asset]) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=printable,
        )
        self._environment.filters.update(
            day=words.day,
            distance=words.distance,
            file=words.file,
            host=words.host,
            moment=words.moment,
            paragraphs=words.paragraphs,
            plainly=lambda html: words.line(html, "text/html", max_chars=500),
            size=words.size,
            span=lambda seconds: words.span(timedelta(seconds=seconds)),
        )
        self._environment.tests["link"] = words.is_link
        self._environment.globals.update(
            assets={name: asset.path for name, asset in files.items()},
            bars=sparkline.bars,
            drawn=(sparkline.WIDTH, sparkline.HEIGHT),
            feeds_url=feeds_url,
            items_url=items_url,
            spoken=sparkline.describe,
        )

    def feeds(self, data: FeedList, query: FeedsQuery, tags: list[str], now: datetime) -> str:
        return self._render("feeds.html", data=data, query=query, tags=tags, now=now)

    def feed(self, data: FeedDetail, now: datetime) -> str:
        return self._render("feed.html", data=data, now=now)

    def items(self, data: ItemList, query: ItemsQuery, now: datetime) -> str:
        return self._render(
            "items.html",
            data=data,
            query=query,
            now=now,
            atom=atom.address(query, after=""),
            heading=atom.title(query, data),
            next=atom.address(query, path="/items", after=data.after or ""),
        )

    def item(self, data: ItemDetail, now: datetime) -> str:
        return self._render("item.html", data=data, now=now)

    def error(self, error: UsherError) -> str:
        return self._render("error.html", error=error)

    def _render(self, template: str, **values: Any) -> str:  # noqa: ANN401 - what the template shows
        return self._environment.get_template(template).render(**values)


def printable(value: object) -> object:
    """The value without invisible characters, so that no foreign text rearranges the page."""
    foreign = isinstance(value, str) and not hasattr(value, "__html__")
    return words.visible(str(value)) if foreign else value


def feeds_url(query: FeedsQuery | None = None, **changed: object) -> str:
    """The URL of a list of feeds, with the changed conditions."""
    old = query or FeedsQuery()
    values = {"show": old.show, "tag": old.tag, "contains": old.contains, "after": 0, **changed}
    if values["show"] == "all":
        del values["show"]
    parameters = {name: value for name, value in values.items() if value}
    return f"/feeds?{urlencode(parameters, errors='replace')}" if parameters else "/feeds"


def items_url(**conditions: object) -> str:
    """The URL of a list of items."""
    return f"/items?{urlencode(conditions, errors='replace')}"
