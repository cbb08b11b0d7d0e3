"""Endpoints for what crawlers learn about hosts: robots.txt, sitemaps, and feeds that pages offer."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from usher.api.access import CRAWLER
from usher.api.content_chunks import parse_link
from usher.api.context import MgmtCall
from usher.api.door import link_verdicts
from usher.api.mgmt_calls import RequestT, calling_component, database_time, mgmt_connection
from usher.door.rules import Reason
from usher.errors import NotFound
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.messages.crawler import (
    MAX_URLS_PER_REQUEST,
    LinkVerdicts,
    OfferedFeedsAnswer,
    OfferedFeedsReport,
    RobotsAnswer,
    RobotsQuery,
    RobotsRequest,
    SitemapReport,
)
from usher.mgmt import offered_feeds, robots
from usher.private_hosts import may_lead
from usher.urls import Url, UrlRefusal, parse

ENDPOINTS = EndpointList()


@ENDPOINTS.get("/v1/robots", "The last report of a host's robots.txt", CRAWLER)
async def get_robots(call: MgmtCall[RobotsQuery]) -> RobotsAnswer:
    origin = parse_link(call.body.origin)
    await calling_component(call, "crawler")
    async with mgmt_connection(call, alone=True) as conn:
        stored = await robots.find_robots(conn, origin.host, origin.scheme)
    return robots_answer(stored) if stored else RobotsAnswer()


@ENDPOINTS.post("/v1/robots", "Report a robots.txt", CRAWLER)
async def set_robots(call: MgmtCall[RobotsRequest]) -> RobotsAnswer:
    """Store a robots.txt; the door judges the sitemaps that it names."""
    request, now = call.body, database_time(call)
    origin = parse_link(request.origin)
    await calling_component(call, "crawler")
    delay = None if request.crawl_delay is None else timedelta(seconds=request.crawl_delay)
    report = robots.RobotsReport(request.status, request.body, request.error, delay)
    async with mgmt_connection(call) as conn:
        stored = await robots.store_robots(conn, origin.host, origin.scheme, report, now=now)
    if stored is None:
        raise NotFound(f"{origin.host} is not a known host.")
    await admit_sitemaps(call, request.sitemaps, origin, "robots.txt")
    return robots_answer(stored)


async def admit_sitemaps(
    call: MgmtCall[RequestT], links: Sequence[str], source: Url, found_in: str
) -> None:
    """Let sitemaps knock as pages do, but no filter of file names refuses them."""
    urls = [url for link in links if not isinstance(url := parse(link), UrlRefusal)]
    if not urls:
        return
    verdicts = await call.context.doorkeeper.knock(
        [str(url) for url in urls], found_on=source.host, filtered=False
    )
    pairs = zip(urls, verdicts.answers, strict=True)
    public = [url for url, verdict in pairs if verdict.reason is not Reason.PRIVATE_HOST]
    async with mgmt_connection(call) as conn:
        await robots.add_sitemaps(conn, public, found_in=found_in, now=database_time(call))


@ENDPOINTS.post("/v1/sitemap", f"Report up to {MAX_URLS_PER_REQUEST:,} pages of a sitemap", CRAWLER)
async def add_sitemap(call: MgmtCall[SitemapReport]) -> LinkVerdicts:
    """Let the pages of a sitemap knock; those that changed since the last visit are due."""
    report, now = call.body, database_time(call)
    check_count(report.links, "links", MAX_URLS_PER_REQUEST)
    sitemap, door = parse_link(report.link), call.context.doorkeeper
    await calling_component(call, "crawler")
    if changes := [(page.link, page.changed) for page in report.links if page.changed is not None]:
        await door.hint(changes, source=sitemap.host)
    verdicts = await door.knock([page.link for page in report.links], found_on=sitemap.host)
    await admit_sitemaps(call, report.sitemaps, sitemap, str(sitemap))
    async with mgmt_connection(call) as conn:
        await robots.record_sitemap_read(
            conn,
            sitemap,
            pages=report.pages,
            sitemaps=len(report.sitemaps),
            problem=report.problem,
            now=now,
        )
    return link_verdicts(verdicts)


@ENDPOINTS.post("/v1/feeds_offered", "Report feeds that pages of a host offer", CRAWLER)
async def add_feeds(call: MgmtCall[OfferedFeedsReport]) -> OfferedFeedsAnswer:
    """Store feeds that pages offer, without what is no URL and without private hosts other than the page's own."""
    origin = parse_link(call.body.origin)
    await calling_component(call, "crawler")
    allowed = call.context.doorkeeper.allowed
    urls = [
        url
        for feed in call.body.feeds
        if not isinstance(url := parse(feed), UrlRefusal)
        and may_lead(allowed, origin.host, url.host)
    ]
    if not urls:
        return OfferedFeedsAnswer(0)
    async with mgmt_connection(call) as conn:
        new = await offered_feeds.add_offers(conn, origin.host, urls, now=database_time(call))
    return OfferedFeedsAnswer(len(new))


def robots_answer(stored: robots.RobotsRow) -> RobotsAnswer:
    return msgspec.convert(stored, RobotsAnswer, from_attributes=True)
