"""Renders the pages of the console as HTML, which works without scripts, and their data as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from usher.console.page import ConsolePage
from usher.feeds.pages import render as feed_pages
from usher.mgmt.console_sessions import form_token
from usher.mgmt.tokens import Token
from usher.search import assets
from usher.search.assets import Asset
from usher.wording import json_value, printable, relative_time

HERE: Final = Path(__file__).parent
MAX_TEXT_CHARACTERS: Final = 2_500
# Browsers may read a page again, to update it.
POLICY: Final = f"{feed_pages.POLICY}; connect-src 'self'"
SECTIONS: Final = (
    ("/", "Overview"),
    ("/charts", "Charts"),
    ("/crawls", "Crawls"),
    ("/pages", "Pages"),
    ("/hosts", "Hosts"),
    ("/jobs", "Jobs"),
    ("/tasks", "Tasks"),
    ("/components", "Components"),
    ("/chunks", "Chunks"),
    ("/searches", "Searches"),
    ("/feeds", "Feeds"),
    ("/removals", "Removals"),
    ("/tokens", "Tokens"),
    ("/events", "Events"),
    ("/log", "Log"),
    ("/settings", "Settings"),
)


def load_assets() -> dict[str, Asset]:
    """The static files of the search page, of the pages of feeds, and our own."""
    own = sorted(file for file in (HERE / "static").iterdir() if file.suffix in assets.TYPES)
    return {**feed_pages.load_assets(), **assets.name_by_digest(own)}


class ConsoleTemplates:
    """The templates, compiled once."""

    def __init__(self, files: Mapping[str, Asset]) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=visible,
        )
        self._environment.filters.update(ago=relative_time, lines=lines)
        self._environment.globals.update(
            assets={name: asset.path for name, asset in files.items()}, sections=SECTIONS
        )

    def page(
        self, page: ConsolePage, *, token: Token | None, session: str, path: str, twin: str
    ) -> str:
        """The page for a caller; forms get the CSRF token of its session. `twin` is the address of its data."""
        return self.render(
            page.template,
            heading=page.heading,
            command=page.command,
            user=token,
            is_admin=token is not None and token.scope == "admin",
            csrf=form_token(session) if session else "",
            section=f"/{path.split('/')[1]}",
            path=path,
            twin=twin,
            live_seconds=page.live_seconds,
            **page.values,
        )

    def render(self, template: str, **values: Any) -> str:  # noqa: ANN401 - what the template shows
        return self._environment.get_template(template).render(**values)


def visible(value: object) -> object:
    """Text without invisible characters, so that no foreign text rearranges the page."""
    is_foreign = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(str(value), MAX_TEXT_CHARACTERS) if is_foreign else value


def lines(text: str) -> Markup:
    """A text of several lines, each without invisible characters."""
    shown = (printable(line, MAX_TEXT_CHARACTERS) for line in text.splitlines())
    return Markup("\n").join(shown)


def to_json(value: object) -> bytes:
    """The data of a page as JSON: times in UTC, durations in seconds, other values as text."""
    return msgspec.json.encode(plain(value), enc_hook=str)


def plain(value: object) -> object:
    """The value with dictionaries instead of dataclasses."""
    if is_dataclass(value) and not isinstance(value, type):
        return json_value(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return json_value(value)
