"""The search page as HTML: made on the server, escaped by the templates, of use without a script.

Comes from the broker's answer; goes to browsers.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from usher.query.language import Query
from usher.search import result_view
from usher.search.assets import Asset
from usher.search.search_result import MAX_HITS, SearchResult

TEMPLATES: Final = Path(__file__).parent / "templates"
LONGEST_TITLE: Final = 80


class SearchPages:
    """Templates, read once."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._made = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._made.filters.update(
            day=result_view.day,
            duration=result_view.duration,
            language=result_view.language,
            quoted=shlex.quote,
        )
        self._made.globals.update(
            assets={name: one.path for name, one in assets.items()},
            address_of=result_view.address_of,
            narrowed=result_view.narrowed,
            most=MAX_HITS,
        )

    def home(self) -> str:
        return self._made.get_template("home.html").render(text="")

    def results(self, answer: SearchResult, page: int) -> str:
        """One page of results, or why there is none."""
        found, query = answer.results, answer.query
        return self._made.get_template("results.html").render(
            answer=answer,
            filters=result_view.filters(query),
            first=(page - 1) * result_view.RESULTS_PER_PAGE + 1,
            found=found,
            heading=heading(query),
            hint=result_view.hint(query),
            page=page,
            query=query,
            results=result_view.results(answer),
            text=query.text,
            turn=result_view.paginate(found.total, page),
        )

    def trouble(self, query: Query, message: str) -> str:
        """Nobody answered."""
        return self._made.get_template("trouble.html").render(
            text=query.text, heading=heading(query), message=message
        )

    def opensearch(self, origin: str) -> str:
        return self._made.get_template("opensearch.xml").render(origin=origin)


def heading(query: Query) -> str:
    text = query.text
    return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE]}\N{HORIZONTAL ELLIPSIS}"
