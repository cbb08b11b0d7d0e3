"""Messages of crawlers: pages to fetch, results, links, robots.txt, sitemaps, feeds."""

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from usher.messages.fields import (
    MAX_PAGES_PER_CHUNK,
    ByteCount,
    ChunkId,
    ComponentRequest,
    Count,
    HttpStatusCode,
    PageCount,
    ReasonText,
    Seconds,
    Sha1,
    Sha256,
    Text64,
    Time,
)

MAX_URLS_PER_REQUEST: Final = 10_000
# MGMT counts the URLs itself: it answers 413 where a limit of the type would give 422.
UrlList = Annotated[list[str], Meta(extra_json_schema={"maxItems": MAX_URLS_PER_REQUEST})]
SitemapUrls = Annotated[list[str], Meta(max_length=1_000)]
PageResult = Literal["success", "unchanged", "failure", "gone", "moved", "barred"]
LinkState = Literal["crawled", "error"]


class PrivateAccess(Struct, frozen=True):
    """The operator's permission to request a private host: the port, and the only addresses to connect to."""

    port: int
    addresses: tuple[str, ...]


class LinksQuery(ComponentRequest, kw_only=True):
    """By default as in the seed; `n` pages of up to `hosts` hosts, at most `each` of one host.

    With `hold`, a host that rests between requests belongs to the caller until it reports. `wait` limits the seconds
    that a page waits for a full chunk, where that is less than MGMT's own limit.
    """

    n: PageCount | None = None
    hosts: PageCount | None = None
    each: PageCount | None = None
    wait: Seconds | None = None
    pages: bool = False
    hold: bool = False


class MoreLinksQuery(ComponentRequest, kw_only=True):
    chunk_id: ChunkId | None = None
    pages: bool = False
    hold: bool = False


class PageToFetch(Struct, omit_defaults=True):
    """A page with what a conditional request needs, and the seconds that its host rests between requests.

    `text64` is the fingerprint of its text that a crawler reported, `depth` its distance in clicks from a seed.
    `private` permits a connection to a private host. `delay_is_set`: the operator set the delay of the host, which
    replaces the one that its robots.txt asks for.
    """

    link: str
    crawl_delay: float
    etag: str | None = None
    last_modified: datetime | None = None
    text64: str | None = None
    depth: int = 0
    private: PrivateAccess | None = None
    delay_is_set: bool = False


class LinkChunk(Struct, omit_defaults=True):
    """A chunk of pages to crawl, empty while there are too few; `lease` is in seconds. `pages` are on request.

    With `upload`, there is an object store: the crawler uploads the file to the URL of POST /v1/upload_url.
    """

    chunk_id: int = 0
    links: list[str] = []
    pages: list[PageToFetch] = []
    lease: float = 0
    upload: bool = False


class MoreLinks(Struct, omit_defaults=True):
    chunk_id: int
    links: list[str]
    pages: list[PageToFetch] = []


class LinkStateRequest(ComponentRequest, kw_only=True):
    link: str
    state: LinkState
    chunk_id: ChunkId | None = None
    status: HttpStatusCode | None = None


class LinkStateAnswer(Struct, omit_defaults=True):
    """`link` is a page to fetch instead of one that failed, if there is one."""

    chunk_id: int
    state: str
    link: str | None = None


class PageAnchors(Struct):
    """A page, and the text of each of its links: what the page calls the linked page."""

    page: str
    links: list[tuple[str, str]]


class AddLinksRequest(Struct, omit_defaults=True):
    """Links, the page or host that names them, and their distance in clicks from a seed.

    `moved_from` is a seed that redirects to the links: then no scope limits them. `anchors` are the texts of links of
    pages of the host `found_on`, also of links that the caller added before.
    """

    links: UrlList
    found_on: str | None = None
    moved_from: str | None = None
    depth: Annotated[int, Meta(ge=0, le=30_000)] = 0
    anchors: list[PageAnchors] = []


class VerdictCounts(Struct):
    admit: int = 0
    wait: int = 0
    refuse: int = 0


class LinkVerdicts(Struct):
    """How many links got each verdict and each reason."""

    counts: VerdictCounts
    reasons: dict[str, int]


class PageReport(Struct, kw_only=True, omit_defaults=True):
    """The result of one page: its `state` as in the seed, or more exactly its `result`."""

    link: str
    state: LinkState | None = None
    result: PageResult | None = None
    status: HttpStatusCode | None = None
    content_type: Annotated[str, Meta(max_length=200)] | None = None
    content_length: Count = field(default=0, name="length")
    content_sha1: Sha1 | None = field(default=None, name="sha1")
    etag: Annotated[str, Meta(max_length=1_000)] | None = None
    last_modified: Time | None = None
    retry_after: Seconds | None = None
    text64: Text64 | None = None
    noindex: bool = False
    scheme: Literal["https", "http"] | None = None
    reason: ReasonText | None = None


class ContentChunkReport(ComponentRequest, kw_only=True):
    """The state of a chunk's content. Pages that `pages` does not name were not fetched, unless it is absent.

    `stored` says that the content is in the object store, so that the crawler does not keep it.
    """

    chunk_id: ChunkId
    state: Literal["crawling", "crawled", "error", "propagated"]
    sha256: Sha256 | None = None
    bytes: ByteCount | None = None
    reason: ReasonText = ""
    pages: Annotated[list[PageReport], Meta(max_length=MAX_PAGES_PER_CHUNK)] | None = None
    stored: bool = False


class RobotsQuery(ComponentRequest, kw_only=True):
    """A host by any of its URLs: `https://example.com/`."""

    origin: str


class RobotsRequest(ComponentRequest, kw_only=True):
    """The answer to a request for robots.txt; without a status there was none."""

    origin: str
    status: HttpStatusCode | None = None
    body: Annotated[str, Meta(max_length=512_000)] = ""
    error: ReasonText = ""
    crawl_delay: Seconds | None = None
    sitemaps: SitemapUrls = field(default_factory=list)


class RobotsAnswer(Struct, omit_defaults=True):
    """A robots.txt as a crawler reported it; empty if none did."""

    status: int | None = None
    body: str = ""
    fetched_at: datetime | None = None
    expires_at: datetime | None = None
    failures: int = 0
    error: str = ""


class SitemapLink(Struct, omit_defaults=True):
    """A page, and when its site says that it changed."""

    link: str
    changed: Time | None = None


class SitemapReport(ComponentRequest, kw_only=True):
    """A sitemap, or a part of it: its pages, other sitemaps, and how many pages it has in all."""

    link: str
    links: list[SitemapLink] = field(default_factory=list)
    sitemaps: SitemapUrls = field(default_factory=list)
    pages: Count = 0
    problem: ReasonText = ""


class OfferedFeedsReport(ComponentRequest, kw_only=True):
    """Feeds that pages of a host offer; the host by any of its URLs."""

    origin: str
    feeds: Annotated[list[str], Meta(max_length=1_000)]


class OfferedFeedsAnswer(Struct):
    """How many of the feeds are new."""

    new: int
