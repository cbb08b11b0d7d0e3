"""Results of a search as an Atom feed, so that any reader tells its owner what is new for a question.

Comes from the broker's answer; goes to readers. A page keeps its name for as long as it has its address.
"""

from datetime import datetime

from usher.http.atom import ATOM_MEDIA_TYPE, AtomEntry, AtomFeed, AtomLink, stable_urn
from usher.search import result_view
from usher.search.merge import MergedHit
from usher.search.result_view import ResultView
from usher.search.search_result import SearchResult

PATH = "/search.atom"


def feed_of(answer: SearchResult, page: int, *, origin: str) -> AtomFeed:
    """One page of results; `origin` is what the reader calls us."""
    text = answer.query.text
    links = [
        AtomLink(f"{origin}{result_view.address_of(text, page, PATH)}", "self", ATOM_MEDIA_TYPE),
        AtomLink(f"{origin}{result_view.address_of(text, page)}", "alternate", "text/html"),
        AtomLink(f"{origin}{result_view.address_of(text, 1, PATH)}", "first", ATOM_MEDIA_TYPE),
    ]
    if page < result_view.paginate(answer.results.total, page).last:
        links.append(
            AtomLink(
                f"{origin}{result_view.address_of(text, page + 1, PATH)}", "next", ATOM_MEDIA_TYPE
            )
        )
    entries = [entry(one, found.hit.url) for one, found in pairs(answer)]
    own = stable_urn("search", origin, text)
    return AtomFeed(id=own, title=text or "Usher", links=links, entries=entries)


def pairs(answer: SearchResult) -> list[tuple[ResultView, MergedHit]]:
    return list(zip(result_view.results(answer), answer.results.found, strict=True))


def entry(one: ResultView, url: str) -> AtomEntry:
    return AtomEntry(
        id=stable_urn("page", url),
        title="".join(text for text, _ in one.title),
        updated=one.crawled,
        published=one.published,
        links=[AtomLink(one.link)] if one.link else [],
        text="".join(text for text, _ in one.snippet) or one.url,
        language=one.language,
        source=one.host,
    )


def changed(answer: SearchResult) -> datetime | None:
    """When the latest of the results was read."""
    return max((one.hit.crawled for one in answer.results.found), default=None)
