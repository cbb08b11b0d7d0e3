"""Parses fetched bodies, which are not trusted: `parse_page` for the crawler, `extract_documents` for the index.

Neither raises: a broken page gives less, and `problem` says why. One core parses 1,700 to 2,300 pages of 10 to 24 kB
per second for the crawler and 330 to 420 for the index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from selectolax.lexbor import LexborNode

from usher.anchor_text import Anchor
from usher.crawl.page import pdf
from usher.crawl.page.anchors import anchors_of
from usher.crawl.page.charset import decode
from usher.crawl.page.document import PageDocument, from_markup, from_pdf, from_text
from usher.crawl.page.fingerprint import join_problems, text64
from usher.crawl.page.head import MAX_REFRESH_SECONDS, PageHead, parse_head
from usher.crawl.page.links import LinkResolver, resolve_links
from usher.crawl.page.markup import Markup, parse_markup
from usher.crawl.page.media_type import ContentKind, content_kind
from usher.crawl.robots import AGENT, directives
from usher.urls import Url

__all__ = ["PageDocument", "ParsedPage", "extract_documents", "parse_page"]

MAX_BYTES: Final = 10_000_000
_READABLE_KINDS: Final = frozenset({"html", "text", "pdf"})
_NO_TEXT: Final = "its content type has no text that Usher reads"

_QUERY: Final = (
    "a[href]:not([rel~=nofollow i],[rel~=ugc i],[rel~=sponsored i]),"
    "area[href]:not([rel~=nofollow i],[rel~=ugc i],[rel~=sponsored i]),iframe[src],frame[src]"
)


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """What the crawler needs of a page; URLs are canonical, each once, in order."""

    kind: ContentKind
    links: list[str] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)
    canonical: str | None = None
    refresh: str | None = None
    noindex: bool = False
    nofollow: bool = False
    feeds: list[str] = field(default_factory=list)
    text64: int = 0
    dropped: int = 0
    problem: str = ""


def parse_page(
    body: bytes, url: Url, *, media_type: str, charset: str = "", robots_tags: Sequence[str] = ()
) -> ParsedPage:
    kind = content_kind(media_type, body)
    body, problem = _bounded(body)
    if kind == "html":
        markup = parse_markup(decode(body, charset), is_xml="xml" in media_type)
        return _parse_html(markup, url, robots_tags, problem)
    allowed = directives(robots_tags, AGENT)
    return ParsedPage(
        kind,
        noindex=allowed.noindex,
        nofollow=allowed.nofollow,
        text64=text64(decode(body, charset)) if kind == "text" else 0,
        problem=join_problems(problem, "" if kind in _READABLE_KINDS else _NO_TEXT),
    )


def extract_documents(
    body: bytes, url: Url, *, media_type: str, charset: str = "", robots_tags: Sequence[str] = ()
) -> list[PageDocument]:
    """Return the documents of a body: one for a page, one for each page of a PDF, none for other kinds."""
    kind = content_kind(media_type, body)
    noindex = directives(robots_tags, AGENT).noindex
    if kind == "pdf":
        return from_pdf(pdf.read_pdf(body), url, noindex=noindex)
    body, problem = _bounded(body)
    if kind == "html":
        markup = parse_markup(decode(body, charset), is_xml="xml" in media_type)
        head = parse_head(markup.trees)
        document = from_markup(markup, head, url, noindex=head.directives(robots_tags).noindex)
    elif kind == "text":
        is_markdown = "markdown" in media_type or url.path.endswith(".md")
        text = decode(body, charset)
        document = from_text(text, url, noindex=noindex, is_markdown=is_markdown)
    else:
        return []
    return [replace(document, problem=join_problems(problem, document.problem))]


def _parse_html(markup: Markup, url: Url, robots_tags: Sequence[str], problem: str) -> ParsedPage:
    own = str(url)
    head = parse_head(markup.trees)
    allowed = head.directives(robots_tags)
    resolver = head.resolver(url)
    seconds, refresh = _refresh(head, resolver, own)
    nodes = [] if allowed.nofollow else list(chain(*(tree.css(_QUERY) for tree in markup.trees)))
    node_hrefs = list(map(_href, nodes))
    hrefs = [] if allowed.nofollow else [*head.links, *node_hrefs]
    if refresh and seconds > MAX_REFRESH_SECONDS and not allowed.nofollow:
        hrefs.append(refresh)
    resolved = resolve_links(hrefs, resolver, own)
    anchors = anchors_of(zip(nodes, node_hrefs, strict=True), resolved.urls)
    head.remove_hidden()
    return ParsedPage(
        "html",
        links=resolved.links,
        anchors=anchors,
        canonical=head.canonical(resolver),
        refresh=refresh if seconds <= MAX_REFRESH_SECONDS else None,
        noindex=allowed.noindex,
        nofollow=allowed.nofollow,
        feeds=resolve_links(head.feeds, resolver, own).links,
        text64=text64(markup.text()),
        dropped=resolved.dropped,
        problem=join_problems(problem, markup.problem),
    )


def _href(node: LexborNode) -> str | None:
    return node.attrs.get("href") or node.attrs.get("src")


def _refresh(head: PageHead, resolver: LinkResolver, own: str) -> tuple[int, str | None]:
    """Return after how many seconds the page redirects, and the URL; None if that is the page itself."""
    if head.refresh is None:
        return 0, None
    seconds, target = head.refresh
    url = resolver(target.partition("#")[0].strip())
    return seconds, url if url != own else None


def _bounded(body: bytes) -> tuple[bytes, str]:
    if len(body) <= MAX_BYTES:
        return body, ""
    return body[:MAX_BYTES], f"only its first {MAX_BYTES:,} bytes were read"
