"""Items as an Atom feed: the result of any search, with stable ids."""

from urllib.parse import urlencode

from usher.feeds.pages.messages import ItemList, ItemRow, ItemsQuery
from usher.feeds.pages.wording import is_link
from usher.http.atom import ATOM_MEDIA_TYPE, AtomEntry, AtomFeed, AtomLink, stable_urn

PATH = "/items.atom"


def feed_of(page: ItemList, query: ItemsQuery, *, origin: str) -> AtomFeed:
    """A page of items as a feed; `origin` is the scheme and host of the request."""
    own = f"{origin}{address(query)}"
    first = f"{origin}{address(query, after='')}"
    links = [
        AtomLink(own, "self", ATOM_MEDIA_TYPE),
        AtomLink(f"{origin}{address(query, path='/items')}", "alternate", "text/html"),
        AtomLink(first, "first", ATOM_MEDIA_TYPE),
    ]
    if page.after:
        links.append(
            AtomLink(f"{origin}{address(query, after=page.after)}", "next", ATOM_MEDIA_TYPE)
        )
    entries = [entry(item, origin) for item in page.items]
    return AtomFeed(
        id=stable_urn("items", first), title=title(query, page), links=links, entries=entries
    )


def entry(item: ItemRow, origin: str) -> AtomEntry:
    own_page = f"{origin}/items/{item.id}"
    link = item.link if is_link(item.link) else own_page
    return AtomEntry(
        # A restored database may give the same number to another item, so the time is part of the id.
        id=stable_urn("item", item.id, item.seen.isoformat()),
        title=item.title or "Untitled",
        updated=item.changed,
        published=item.published,
        links=[AtomLink(link), AtomLink(own_page, "related", "text/html")],
        categories=item.tags,
        text=item.text,
        language=item.language,
        source=item.feed_title,
    )


def address(query: ItemsQuery, *, path: str = PATH, after: str | None = None) -> str:
    """The URL of a search, always the same for the same query."""
    parameters = {
        "words": query.words.strip(),
        "feed": query.feed.strip(),
        "tag": query.tag.strip(),
        "since": query.since.strip(),
        "until": query.until.strip(),
        "limit": str(query.limit) if query.limit != ItemsQuery().limit else "",
        "after": query.after if after is None else after,
    }
    query_string = urlencode(
        {name: value for name, value in parameters.items() if value}, errors="replace"
    )
    return f"{path}?{query_string}" if query_string else path


def title(query: ItemsQuery, page: ItemList) -> str:
    """The query in words."""
    parts = [query.words.strip() or "Items"]
    if tag := query.tag.strip():
        parts.append(f"tagged {tag}")
    if feed := query.feed.strip():
        feed_title = page.items[0].feed_title if page.items else ""
        parts.append(f"of {feed_title}" if feed_title else f"of feed {feed}")
    if since := query.since.strip():
        parts.append(f"from {since} on")
    if until := query.until.strip():
        parts.append(f"until {until}")
    return ", ".join(parts)
