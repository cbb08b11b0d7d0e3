"""The endpoints of feeds in MGMT: web pages, the same as JSON and Atom, and the callback of hubs.

Only the callback needs no token, because its URL contains one.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.responses import Response

from usher.api.access import READ
from usher.api.context import MgmtCall, MgmtEndpoint
from usher.api.mgmt_calls import database_time
from usher.api.openapi import HTML_MEDIA_TYPE, Endpoints
from usher.errors import BadInput, NotAllowed, NotFound, UsherError
from usher.feeds.pages import atom, queries, render, views
from usher.feeds.pages.databases import LazyDatabases
from usher.feeds.pages.messages import (
    MAX_ID,
    FeedDetail,
    FeedList,
    FeedsQuery,
    HubQuery,
    ItemDetail,
    ItemList,
    ItemsQuery,
)
from usher.feeds.pages.render import FeedPages
from usher.feeds.websub import callbacks
from usher.http.atom import ATOM_MEDIA_TYPE, to_xml
from usher.http.server.conditional import conditional_response, server_origin
from usher.http.server.endpoint import OPEN, Endpoint, EndpointList
from usher.http.server.middleware import RETRY_SECONDS
from usher.messages.server import Status
from usher.settings import Settings
from usher.telemetry import Log

log = Log("web")
JSON: Final = "application/json"
NO_CACHE: Final = {"Cache-Control": "private, no-cache"}
HTML_HEADERS: Final = {**NO_CACHE, "Content-Security-Policy": render.POLICY}
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
T = TypeVar("T")
Handler = Callable[[MgmtCall[T]], Awaitable[Response]]


@asynccontextmanager
async def feed_endpoints(settings: Settings) -> AsyncIterator[Endpoints]:
    """The endpoints, and their databases while MGMT runs."""
    async with AsyncExitStack() as stack:
        yield FeedEndpoints(LazyDatabases(settings, stack)).endpoints()


class FeedEndpoints:
    """The endpoints of feeds."""

    def __init__(self, databases: LazyDatabases) -> None:
        self._databases = databases
        self._pages = FeedPages(render.load_assets())

    def endpoints(self) -> Endpoints:
        return (
            self._page("/feeds", self.feeds, FeedsQuery, "Feed status and next poll, as a page"),
            self._get("/feeds.json", self.feeds_json, FeedsQuery, FeedList, "Feeds, as data"),
            self._get("/feeds/{id}.json", self.feed_json, None, FeedDetail, "One feed, as data"),
            self._page("/feeds/{id}", self.feed, None, "The page of one feed"),
            self._page("/items", self.items, ItemsQuery, "A page of items, searched"),
            self._get("/items.json", self.items_json, ItemsQuery, ItemList, "Items, as data"),
            self._get(
                atom.PATH,
                self.items_atom,
                ItemsQuery,
                None,
                "Items, as an Atom feed",
                ATOM_MEDIA_TYPE,
            ),
            self._get("/items/{id}.json", self.item_json, None, ItemDetail, "One item, as data"),
            self._page("/items/{id}", self.item, None, "The page of one item"),
            *self._callback("/websub/{token}"),
        )

    def _page(
        self, path: str, show: Handler[Any], request: type | None, summary: str
    ) -> MgmtEndpoint:
        async def show_or_fail(call: MgmtCall[Any]) -> Response:
            try:
                return await show(call)
            except NotAllowed:
                raise  # the database refused a statement; MGMT logs it
            except UsherError as error:
                return self.error_page(error, path)

        return self._get(path, show_or_fail, request, None, summary, HTML_MEDIA_TYPE)

    def _get(
        self,
        path: str,
        tell: Handler[Any],
        request: type | None,
        response: type | None,
        summary: str,
        media: str = "text/plain",
    ) -> MgmtEndpoint:
        return Endpoint("GET", path, tell, request, response, summary, access=READ, media=media)

    def _callback(self, path: str) -> Endpoints:
        endpoints = EndpointList()
        endpoints.get(path, "A hub verifies a subscription", OPEN, safe=False)(self.verify)
        endpoints.post(path, "A hub announces news", OPEN)(self.deliver)
        return endpoints

    def error_page(self, error: UsherError, path: str) -> Response:
        headers = dict(HTML_HEADERS)
        if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            log.warning("request_failed", path=path, reason=error.message)
            headers["Retry-After"] = str(RETRY_SECONDS)
        return Response(self._pages.error(error), error.status, headers, media_type=HTML_MEDIA_TYPE)

    # Feeds.

    async def feeds(self, call: MgmtCall[FeedsQuery]) -> Response:
        now = database_time(call)
        async with self._databases.reading() as conn:
            feeds = await views.feed_list(conn, call.body, now=now)
            tags = await queries.tags(conn)
        return html(call, self._pages.feeds(feeds, call.body, tags, now))

    async def feeds_json(self, call: MgmtCall[FeedsQuery]) -> Response:
        async with self._databases.reading() as conn:
            return json(call, await views.feed_list(conn, call.body, now=database_time(call)))

    async def feed(self, call: MgmtCall[None]) -> Response:
        now = database_time(call)
        return html(call, self._pages.feed(await self._feed(call, now), now))

    async def feed_json(self, call: MgmtCall[None]) -> Response:
        return json(call, await self._feed(call, database_time(call)))

    async def _feed(self, call: MgmtCall[None], now: datetime) -> FeedDetail:
        id_ = number_of(call, "feed")
        async with self._databases.reading() as conn:
            return await views.feed_detail(conn, id_, now=now)

    # Items.

    async def items(self, call: MgmtCall[ItemsQuery]) -> Response:
        items = await self._items(call)
        return html(call, self._pages.items(items, call.body, database_time(call)))

    async def items_json(self, call: MgmtCall[ItemsQuery]) -> Response:
        return json(call, await self._items(call))

    async def items_atom(self, call: MgmtCall[ItemsQuery]) -> Response:
        items = await self._items(call)
        feed = atom.feed_of(items, call.body, origin=server_origin(call.headers))
        changed = feed.updated if items.items else None
        return conditional_response(call.headers, to_xml(feed), ATOM_MEDIA_TYPE, NO_CACHE, changed)

    async def _items(self, call: MgmtCall[ItemsQuery]) -> ItemList:
        async with self._databases.reading() as conn:
            return await views.item_list(conn, call.body)

    async def item(self, call: MgmtCall[None]) -> Response:
        return html(call, self._pages.item(await self._item(call), database_time(call)))

    async def item_json(self, call: MgmtCall[None]) -> Response:
        return json(call, await self._item(call))

    async def _item(self, call: MgmtCall[None]) -> ItemDetail:
        id_ = number_of(call, "item")
        async with self._databases.reading() as conn:
            return await views.item_detail(conn, id_)

    # Hubs.

    async def verify(self, call: MgmtCall[HubQuery]) -> Response:
        query, databases = call.body, await self._databases.databases()
        if query.mode != "denied" and not 0 < len(query.challenge) <= callbacks.MAX_CHALLENGE_CHARS:
            raise BadInput("hub.challenge is missing or too long.")
        await callbacks.verify(
            databases,
            call.path_params["token"],
            query.mode,
            query.topic,
            lease=query.lease_seconds,
            reason=query.reason,
        )
        return Response(query.challenge, media_type="text/plain")

    async def deliver(self, call: MgmtCall[bytes]) -> Status:
        """Handle a delivery; the answer is the same for valid and invalid signatures."""
        signature = call.headers.get("x-hub-signature", "")
        databases = await self._databases.databases()
        await callbacks.deliver(databases, call.path_params["token"], signature, call.body)
        return Status("heard")


def number_of(call: MgmtCall[Any], what: Literal["feed", "item"]) -> int:
    text = call.path_params["id"]
    if not _NUMBER.fullmatch(text) or int(text) > MAX_ID:
        raise NotFound(f"There is no {what} {text[:40]!a}.", hint=f"/{what}s lists them.")
    return int(text)


def html(call: MgmtCall[Any], body: str) -> Response:
    return conditional_response(call.headers, body.encode(), HTML_MEDIA_TYPE, HTML_HEADERS)


def json(call: MgmtCall[Any], value: object) -> Response:
    return conditional_response(call.headers, msgspec.json.encode(value), JSON, NO_CACHE)
