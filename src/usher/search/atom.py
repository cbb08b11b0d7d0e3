"""Results of a search as an Atom feed, so that any reader tells its owner what is new for a question.

Comes from the broker's answer; goes to readers. A page keeps its name for as long as it has its address.
"""

from datetime import datetime

from usher.http.atom import MEDIA, Document, Entry, Link, name
from usher.search import result_view
from usher.search.merge import MergedHit
from usher.search.result_view import ResultView
from usher.search.search_result import SearchResult

PATH = "/search.atom"


def feed_of(answer: SearchResult, page: int, *, origin: str) -> Document:
    """One page of results; `origin` is what the reader calls us."""
    text = answer.query.text
    links = [
        Link(f"{origin}{result_view.address_of(text, page, PATH)}", "self", MEDIA),
        Link(f"{origin}{result_view.address_of(text, page)}", "alternate", "text/html"),
        Link(f"{origin}{result_view.address_of(text, 1, PATH)}", "first", MEDIA),
    ]
    if page < result_view.paginate(answer.results.total, page).last:
        links.append(Link(f"{origin}{result_view.address_of(text, page + 1, PATH)}", "next", MEDIA))
    entries = [entry(one, found.hit.url) for one, found in pairs(answer)]
    own = name("search", origin, text)
    return Document(id=own, title=text or "Usher", links=links, entries=entries)


def pairs(answer: SearchResult) -> list[tuple[ResultView, MergedHit]]:
    return list(zip(result_view.results(answer), answer.results.found, strict=True))


def entry(one: ResultView, url: str) -> Entry:
    return Entry(
        id=name("page", url),
        title="".join(text for text, _ in one.title),
        updated=one.crawled,
        published=one.published,
        links=[Link(one.link)] if one.link else [],
        text="".join(text for text, _ in one.snippet) or one.url,
        language=one.language,
        source=one.host,
    )


def changed(answer: SearchResult) -> datetime | None:
    """When the latest of the results was read."""
    return max((one.hit.crawled for one in answer.results.found), default=None)
