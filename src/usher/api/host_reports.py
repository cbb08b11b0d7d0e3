"""What crawlers learn of hosts beside their pages: robots.txt, kept for every crawler, sitemaps, feeds on offer."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from usher.api.access import work
from usher.api.content_chunks import read
from usher.api.context import MgmtCall
from usher.api.door import link_verdicts
from usher.api.mgmt_calls import Says, caller, database_time, mgmt_connection
from usher.door.rules import Reason
from usher.errors import NotFound
from usher.http.server.endpoint import Endpoint
from usher.http.server.middleware import HttpError
from usher.messages.crawler import (
    MAX_URLS_PER_REQUEST,
    LinkVerdicts,
    OfferedFeedsAnswer,
    OfferedFeedsReport,
    RobotsQuery,
    RobotsReport,
    SitemapReport,
    StoredRobots,
)
from usher.mgmt import offered_feeds, robots
from usher.private_hosts import may_lead
from usher.urls import Url, UrlRefusal, parse

MOST_SITEMAPS: Final = 1_000  # told of at once


async def get_robots(call: MgmtCall[RobotsQuery]) -> StoredRobots:
    asked = read(call.body.origin)
    await caller(call, "crawler")
    async with mgmt_connection(call, alone=True) as conn:
        found = await robots.find_robots(conn, asked.host, asked.scheme)
    return shown(found) if found else StoredRobots()


async def set_robots(call: MgmtCall[RobotsReport]) -> StoredRobots:
    """What a crawler read; the sitemaps that it names come in by the door."""
    asked, now = call.body, database_time(call)
    origin = read(asked.origin)
    await caller(call, "crawler")
    delay = None if asked.crawl_delay is None else timedelta(seconds=asked.crawl_delay)
    told = robots.RobotsReport(asked.status, asked.body, asked.error, delay)
    async with mgmt_connection(call) as conn:
        kept = await robots.store_robots(conn, origin.host, origin.scheme, told, now=now)
    if kept is None:
        raise NotFound(f"{origin.host} is not a host that we know.")
    await let_in(call, asked.sitemaps, origin, "robots.txt")
    return shown(kept)


async def let_in(call: MgmtCall[Says], given: Sequence[str], where: Url, found_in: str) -> None:
    """Sitemaps knock as pages do; no filter of file names keeps them out."""
    urls = [url for text in given[:MOST_SITEMAPS] if not isinstance(url := parse(text), UrlRefusal)]
    if not urls:
        return
    told = await call.context.doorkeeper.knock(
        [str(url) for url in urls], found_on=where.host, filtered=False
    )
    answers = zip(urls, told.answers, strict=True)
    public = [url for url, answer in answers if answer.reason is not Reason.PRIVATE_HOST]
    async with mgmt_connection(call) as conn:
        await robots.add_sitemaps(conn, public, found_in=found_in, now=database_time(call))


async def add_sitemap(call: MgmtCall[SitemapReport]) -> LinkVerdicts:
    """The pages that a sitemap names: those that changed since we saw them are due."""
    asked, now = call.body, database_time(call)
    if len(asked.links) > MAX_URLS_PER_REQUEST:
        message = f"{len(asked.links):,} links are more than {MAX_URLS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Add them in several requests.")
    where, door = read(asked.link), call.context.doorkeeper
    await caller(call, "crawler")
    if changed := [(one.link, one.changed) for one in asked.links if one.changed is not None]:
        await door.hint(changed, source=where.host)
    links = [one.link for one in asked.links]
    told = await door.knock(links, found_on=where.host)
    await let_in(call, asked.sitemaps, where, str(where))
    async with mgmt_connection(call) as conn:
        await robots.record_sitemap_read(
            conn,
            where,
            pages=asked.pages,
            sitemaps=len(asked.sitemaps),
            problem=asked.problem,
            now=now,
        )
    return link_verdicts(told)


async def add_feeds(call: MgmtCall[OfferedFeedsReport]) -> OfferedFeedsAnswer:
    """Feeds that pages offer; what is no URL, or private and of another host, is left out."""
    asked = call.body
    where = read(asked.origin)
    await caller(call, "crawler")
    allowed = call.context.doorkeeper.allowed
    urls = [
        url
        for text in asked.feeds
        if not isinstance(url := parse(text), UrlRefusal)
        and may_lead(allowed, where.host, url.host)
    ]
    async with mgmt_connection(call) as conn:
        new = (
            await offered_feeds.add_offers(conn, where.host, urls, now=database_time(call))
            if urls
            else []
        )
    return OfferedFeedsAnswer(len(new))


def shown(found: robots.StoredRobots) -> StoredRobots:
    return StoredRobots(
        found.status,
        found.body,
        found.fetched_at,
        found.expires_at,
        found.failures,
        found.error,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/robots",
        get_robots,
        RobotsQuery,
        StoredRobots,
        "What a host's robots.txt said last; nothing if nobody has read it",
        access=work("crawler"),
    ),
    Endpoint(
        "POST",
        "/v1/robots",
        set_robots,
        RobotsReport,
        StoredRobots,
        "A robots.txt that was read, or could not be had",
        access=work("crawler"),
    ),
    Endpoint(
        "POST",
        "/v1/sitemap",
        add_sitemap,
        SitemapReport,
        LinkVerdicts,
        f"Pages that a sitemap names, up to {MAX_URLS_PER_REQUEST:,} at once: the door judges them",
        access=work("crawler"),
    ),
    Endpoint(
        "POST",
        "/v1/feeds_offered",
        add_feeds,
        OfferedFeedsReport,
        OfferedFeedsAnswer,
        "Feeds that pages of a host offer, for whoever wants to subscribe",
        access=work("crawler"),
    ),
)
