"""Renders the search page from the templates, which escape all text. The page needs no script."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from usher.query.language import Query
from usher.search import result_view
from usher.search.assets import Asset
from usher.search.search_result import MAX_HITS, SearchResult

TEMPLATES: Final = Path(__file__).parent / "templates"
MAX_TITLE_CHARACTERS: Final = 80


class SearchPages:
    """The templates, compiled once."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(
            day=result_view.day,
            duration=result_view.duration,
            language=result_view.language,
        )
        self._templates.globals.update(
            assets={name: asset.path for name, asset in assets.items()},
            search_path=result_view.search_path,
            narrowed=result_view.narrowed,
            max_hits=MAX_HITS,
        )

    def home(self) -> str:
        return self._templates.get_template("home.html").render(text="")

    def results(self, result: SearchResult, page: int) -> str:
        """One page of results, or why there is none."""
        query = result.query
        return self._templates.get_template("results.html").render(
            result=result,
            merged=result.results,
            filters=result_view.filters(query),
            first=(page - 1) * result_view.RESULTS_PER_PAGE + 1,
            heading=heading(query),
            hint=result_view.hint(query),
            page=page,
            pagination=result_view.paginate(result.results.total, page, more=result.results.more),
            query=query,
            text=query.text,
            views=result_view.result_views(result),
        )

    def unavailable(self, query: Query, message: str) -> str:
        """The page for a search that no server answered."""
        return self._templates.get_template("unavailable.html").render(
            text=query.text, heading=heading(query), message=message
        )

    def opensearch(self, origin: str) -> str:
        return self._templates.get_template("opensearch.xml").render(origin=origin)


def heading(query: Query) -> str:
    return result_view.shorten(query.text, MAX_TITLE_CHARACTERS)
