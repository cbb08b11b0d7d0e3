"""Pages taken apart: bytes in, what a crawler and an index need of them out.

Comes from the answers of web servers, so from anybody; goes to the crawler (`walk`: where it leads, what it allows) and
to the index builder (`read`: what it says). Both are made of the same parts, and nothing raises: less is found, and
`problem` says why.

On one busy core, with Debian's documentation of Python, PostgreSQL, Git and Java and its handbook: 464 pages of 10 to
24 kB are walked at 1,700 to 2,300 a second (a third of that in the parser) and read at 330 to 420; all 1,250 pages,
37 kB on average, are walked at 700 to 860. Resiliparse parses as fast (193 against 206 us) but finds elements slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from usher.crawl.page import pdf
from usher.crawl.page.charset import decode
from usher.crawl.page.document import PageDocument, from_markup, from_pdf, from_text
from usher.crawl.page.fingerprint import join_problems, text64
from usher.crawl.page.head import AGENT, MAX_REFRESH_SECONDS, PageHead, parse_head
from usher.crawl.page.links import LinkResolver, resolve_links
from usher.crawl.page.markup import Markup, parse_markup
from usher.crawl.page.media_type import ContentKind, content_kind
from usher.crawl.robots import directives
from usher.urls import Url

__all__ = ["PageDocument", "ParsedPage", "extract_documents", "parse_page"]

MAX_BYTES: Final = 10_000_000

_QUERY: Final = (
    "a[href]:not([rel~=nofollow i],[rel~=ugc i],[rel~=sponsored i]),"
    "area[href]:not([rel~=nofollow i],[rel~=ugc i],[rel~=sponsored i]),iframe[src],frame[src]"
)


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """What the crawler needs of a page; URLs are absolute and canonical, each once, in order."""

    kind: ContentKind
    links: list[str] = field(default_factory=list)
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
    what = content_kind(media_type, body)
    body, problem = _bounded(body)
    if what == "html":
        markup = parse_markup(decode(body, charset), is_xml="xml" in media_type)
        return _walked(markup, url, robots_tags, problem)
    asked = directives(robots_tags, AGENT)
    number = text64(decode(body, charset)) if what == "text" else 0
    return ParsedPage(
        what, noindex=asked.noindex, nofollow=asked.nofollow, text64=number, problem=problem
    )


def extract_documents(
    body: bytes, url: Url, *, media_type: str, charset: str = "", robots_tags: Sequence[str] = ()
) -> list[PageDocument]:
    """The documents in a body: none in a feed, a sitemap or a picture, one for every page of a PDF."""
    what = content_kind(media_type, body)
    noindex = directives(robots_tags, AGENT).noindex
    if what == "pdf":
        return from_pdf(pdf.read_pdf(body), url, noindex=noindex)
    body, problem = _bounded(body)
    if what == "html":
        markup = parse_markup(decode(body, charset), is_xml="xml" in media_type)
        head = parse_head(markup.trees)
        made = from_markup(markup, head, url, noindex=head.directives(robots_tags).noindex)
    elif what == "text":
        is_markdown = "markdown" in media_type or url.path.endswith(".md")
        text = decode(body, charset)
        made = from_text(text, url, noindex=noindex, is_markdown=is_markdown)
    else:
        return []
    return [replace(made, problem=join_problems(problem, made.problem))]


def _walked(markup: Markup, url: Url, robots_tags: Sequence[str], problem: str) -> ParsedPage:
    own = str(url)
    head = parse_head(markup.trees)
    asked = head.directives(robots_tags)
    resolver = head.resolver(url)
    waits, refresh = _refresh(head, resolver, own)
    hrefs = [] if asked.nofollow else [*head.links, *chain(*map(_hrefs, markup.trees))]
    if refresh and waits > MAX_REFRESH_SECONDS and not asked.nofollow:
        hrefs.append(refresh)
    found = resolve_links(hrefs, resolver, own)
    head.remove_unseen()
    return ParsedPage(
        "html",
        links=found.links,
        canonical=head.canonical(resolver),
        refresh=refresh if waits <= MAX_REFRESH_SECONDS else None,
        noindex=asked.noindex,
        nofollow=asked.nofollow,
        feeds=resolve_links(head.feeds, resolver, own).links,
        text64=text64(markup.text()),
        dropped=found.dropped,
        problem=join_problems(problem, markup.problem),
    )


def _hrefs(tree: LexborHTMLParser) -> list[str | None]:
    return [node.attrs.get("href") or node.attrs.get("src") for node in tree.css(_QUERY)]


def _refresh(head: PageHead, resolver: LinkResolver, own: str) -> tuple[int, str | None]:
    """After how many seconds the page sends its readers where; to itself is nowhere."""
    if head.refresh is None:
        return 0, None
    waits, target = head.refresh
    url = resolver(target.partition("#")[0].strip())
    return waits, url if url != own else None


def _bounded(body: bytes) -> tuple[bytes, str]:
    if len(body) <= MAX_BYTES:
        return body, ""
    return body[:MAX_BYTES], f"only its first {MAX_BYTES:,} bytes were read"
