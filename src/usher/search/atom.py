"""The results of a search as an Atom feed, so that a feed reader can follow a query."""

from usher.http.atom import ATOM_MEDIA_TYPE, AtomEntry, AtomFeed, AtomLink, stable_urn
from usher.search.json_results import text_of
from usher.search.result_view import ResultView, paginate, result_views, search_path
from usher.search.search_result import SearchResult

PATH = "/search.atom"


def atom_feed(result: SearchResult, page: int, *, origin: str) -> AtomFeed:
    """One page of results; `origin` is the address of this server for the reader."""
    text = result.query.text

    def link(rel: str, to_page: int) -> AtomLink:
        return AtomLink(f"{origin}{search_path(text, to_page, PATH)}", rel, ATOM_MEDIA_TYPE)

    html = AtomLink(f"{origin}{search_path(text, page)}", "alternate", "text/html")
    links = [link("self", page), html, link("first", 1)]
    if page < paginate(result.results.total, page, more=result.results.more).last:
        links.append(link("next", page + 1))
    views = zip(result_views(result), result.results.hits, strict=True)
    entries = [entry(view, merged.hit.url) for view, merged in views]
    urn = stable_urn("search", origin, text)
    return AtomFeed(id=urn, title=text or "Usher", links=links, entries=entries)


def entry(view: ResultView, url: str) -> AtomEntry:
    return AtomEntry(
        id=stable_urn("page", url),
        title=text_of(view.title),
        updated=view.crawled,
        published=view.published,
        links=[AtomLink(view.link)] if view.link else [],
        text=" \N{EM DASH} ".join(filter(None, (view.section, text_of(view.snippet)))) or view.url,
        language=view.language,
        source=view.host,
    )
