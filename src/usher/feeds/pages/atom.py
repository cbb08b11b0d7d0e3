"""Items as an Atom feed: any search of them, and any tag, for every reader there is.

Comes from a page of items; goes to readers. An item keeps its name for as long as it is here, whatever is said of it.
"""

from urllib.parse import urlencode

from usher.feeds.pages.messages import ItemList, ItemRow, ItemsQuery
from usher.feeds.pages.wording import is_link
from usher.http.atom import ATOM_MEDIA_TYPE, AtomEntry, AtomFeed, AtomLink, stable_urn

PATH = "/items.atom"


def feed_of(found: ItemList, query: ItemsQuery, *, origin: str) -> AtomFeed:
    """A page of items as a feed; `origin` is what the reader calls us."""
    own = f"{origin}{address(query)}"
    first = f"{origin}{address(query, after='')}"
    links = [
        AtomLink(own, "self", ATOM_MEDIA_TYPE),
        AtomLink(f"{origin}{address(query, path='/items')}", "alternate", "text/html"),
        AtomLink(first, "first", ATOM_MEDIA_TYPE),
    ]
    if found.after:
        links.append(
            AtomLink(f"{origin}{address(query, after=found.after)}", "next", ATOM_MEDIA_TYPE)
        )
    entries = [entry(one, origin) for one in found.items]
    return AtomFeed(
        id=stable_urn("items", first), title=title(query, found), links=links, entries=entries
    )


def entry(one: ItemRow, origin: str) -> AtomEntry:
    here = f"{origin}/items/{one.id}"
    link = one.link if is_link(one.link) else here
    return AtomEntry(
        # When it was first seen tells items of this number apart that are not the same.
        id=stable_urn("item", one.id, one.seen.isoformat()),
        title=one.title or "Untitled",
        updated=one.changed,
        published=one.published,
        links=[AtomLink(link), AtomLink(here, "related", "text/html")],
        categories=one.tags,
        text=one.text,
        language=one.language,
        source=one.feed_title,
    )


def address(query: ItemsQuery, *, path: str = PATH, after: str | None = None) -> str:
    """Where these items are; the same question is always asked in the same words."""
    asked = {
        "words": query.words.strip(),
        "feed": query.feed.strip(),
        "tag": query.tag.strip(),
        "since": query.since.strip(),
        "until": query.until.strip(),
        "limit": str(query.limit) if query.limit != ItemsQuery().limit else "",
        "after": query.after if after is None else after,
    }
    said = urlencode(
        {stable_urn: value for stable_urn, value in asked.items() if value}, errors="replace"
    )
    return f"{path}?{said}" if said else path


def title(query: ItemsQuery, found: ItemList) -> str:
    """What the question is, in words."""
    parts = [query.words.strip() or "Items"]
    if tag := query.tag.strip():
        parts.append(f"tagged {tag}")
    if feed := query.feed.strip():
        known = found.items[0].feed_title if found.items else ""
        parts.append(f"of {known}" if known else f"of feed {feed}")
    if since := query.since.strip():
        parts.append(f"from {since} on")
    if until := query.until.strip():
        parts.append(f"until {until}")
    return ", ".join(parts)
