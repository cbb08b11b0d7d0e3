"""What can be asked about feeds: pages, the same as data and as Atom, and the callback that hubs call.

Comes from browsers, readers, programs and hubs; goes to the schema `feeds`. MGMT serves it beside its own endpoints,
under the same rules: only the callback needs no token, for its address is one.
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
from usher.api.openapi import PAGE, Endpoints
from usher.errors import BadInput, NotAllowed, NotFound, UsherError
from usher.feeds.pages import atom, landing_page, queries, render, views
from usher.feeds.pages.databases import LazyDatabases
from usher.feeds.pages.landing_page import LandingPage
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
from usher.http.server.endpoint import OPEN, Endpoint
from usher.http.server.middleware import RETRY_SECONDS
from usher.messages.server import Status
from usher.settings import Settings
from usher.telemetry import Log

log = Log("web")
JSON: Final = "application/json"
FRESH: Final = {"Cache-Control": "private, no-cache"}
FOR_EVER: Final = {"Cache-Control": "private, max-age=31536000, immutable"}
HTML: Final = {**FRESH, "Content-Security-Policy": render.POLICY}
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
Asked = TypeVar("Asked")
Calls = Callable[[MgmtCall[Asked]], Awaitable[Response]]


@asynccontextmanager
async def feed_endpoints(settings: Settings) -> AsyncIterator[Endpoints]:
    """The endpoints, for as long as MGMT serves them."""
    async with AsyncExitStack() as stack:
        yield FeedEndpoints(LazyDatabases(settings, stack)).endpoints()


class FeedEndpoints:
    """The endpoints of feeds."""

    def __init__(self, reach: LazyDatabases) -> None:
        self._reach = reach
        self._assets = render.load_assets()
        self._files = {one.name: one for one in self._assets.values()}
        self._pages = FeedPages(self._assets)

    def endpoints(self) -> Endpoints:
        return (
            self._home("/"),
            self._page("/feeds", self.feeds, FeedsQuery, "A page of feeds: how they are, and next"),
            self._data("/feeds.json", self.feeds_json, FeedsQuery, FeedList, "Feeds, as data"),
            self._data("/feeds/{id}.json", self.feed_json, None, FeedDetail, "One feed, as data"),
            self._page("/feeds/{id}", self.feed, None, "The page of one feed"),
            self._page("/items", self.items, ItemsQuery, "A page of items, searched"),
            self._data("/items.json", self.items_json, ItemsQuery, ItemList, "Items, as data"),
            self._file(
                atom.PATH, self.items_atom, ItemsQuery, ATOM_MEDIA_TYPE, "Items, as an Atom feed"
            ),
            self._data("/items/{id}.json", self.item_json, None, ItemDetail, "One item, as data"),
            self._page("/items/{id}", self.item, None, "The page of one item"),
            self._file("/static/{name}", self.static, None, "text/css", "Files that pages need"),
            *self._callback("/websub/{token}"),
        )

    def _home(self, path: str) -> MgmtEndpoint:
        what = "What this is, and where everything is: a page for browsers, data for others"
        return Endpoint("GET", path, self.home, None, LandingPage, what, access=READ, media=PAGE)

    def _page(
        self, path: str, show: Calls[Any], request: type | None, summary: str
    ) -> MgmtEndpoint:
        async def shown(call: MgmtCall[Any]) -> Response:
            try:
                return await show(call)
            except NotAllowed:
                raise  # the database forbids us something: that is for the log
            except UsherError as error:
                return self.trouble(error, path)

        return Endpoint("GET", path, shown, request, None, summary, access=READ, media=PAGE)

    def _data(
        self, path: str, tell: Calls[Any], request: type | None, response: type, summary: str
    ) -> MgmtEndpoint:
        return Endpoint("GET", path, tell, request, response, summary, access=READ)

    def _file(
        self, path: str, tell: Calls[Any], request: type | None, media: str, summary: str
    ) -> MgmtEndpoint:
        return Endpoint("GET", path, tell, request, None, summary, access=READ, media=media)

    def _callback(self, path: str) -> Endpoints:
        return (
            Endpoint(
                "GET",
                path,
                self.verify,
                HubQuery,
                None,
                "A hub asks whether we asked it",
                access=OPEN,
                safe=False,
            ),
            Endpoint("POST", path, self.deliver, bytes, Status, "A hub has news", access=OPEN),
        )

    def trouble(self, error: UsherError, path: str) -> Response:
        """What went wrong, as a page."""
        if away := error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            log.warning("request_failed", path=path, reason=error.message)
        more = {"Retry-After": str(RETRY_SECONDS)} if away else {}
        return Response(self._pages.trouble(error), error.status, {**HTML, **more}, media_type=PAGE)

    async def home(self, call: MgmtCall[None]) -> Response:
        page = landing_page.accepts_html(call.headers.get("accept", ""))
        told = (
            html(call, self._pages.home(landing_page.LANDING_PAGE))
            if page
            else json(call, landing_page.LANDING_PAGE)
        )
        told.headers["Vary"] = "Accept"
        return told

    # Feeds.

    async def feeds(self, call: MgmtCall[FeedsQuery]) -> Response:
        now = database_time(call)
        async with self._reach.looking() as conn:
            found = await views.feed_list(conn, call.body, now=now)
            tags = await queries.tags(conn)
        return html(call, self._pages.feeds(found, call.body, tags, now))

    async def feeds_json(self, call: MgmtCall[FeedsQuery]) -> Response:
        async with self._reach.looking() as conn:
            return json(call, await views.feed_list(conn, call.body, now=database_time(call)))

    async def feed(self, call: MgmtCall[None]) -> Response:
        now = database_time(call)
        return html(call, self._pages.feed(await self._feed(call, now), now))

    async def feed_json(self, call: MgmtCall[None]) -> Response:
        return json(call, await self._feed(call, database_time(call)))

    async def _feed(self, call: MgmtCall[None], now: datetime) -> FeedDetail:
        id_ = number_of(call, "feed")
        async with self._reach.looking() as conn:
            return await views.feed_detail(conn, id_, now=now)

    # Items.

    async def items(self, call: MgmtCall[ItemsQuery]) -> Response:
        found = await self._items(call)
        return html(call, self._pages.items(found, call.body, database_time(call)))

    async def items_json(self, call: MgmtCall[ItemsQuery]) -> Response:
        return json(call, await self._items(call))

    async def items_atom(self, call: MgmtCall[ItemsQuery]) -> Response:
        found = await self._items(call)
        feed = atom.feed_of(found, call.body, origin=server_origin(call.headers))
        changed = feed.updated if found.items else None
        return conditional_response(call.headers, to_xml(feed), ATOM_MEDIA_TYPE, FRESH, changed)

    async def _items(self, call: MgmtCall[ItemsQuery]) -> ItemList:
        async with self._reach.looking() as conn:
            return await views.item_list(conn, call.body)

    async def item(self, call: MgmtCall[None]) -> Response:
        return html(call, self._pages.item(await self._item(call), database_time(call)))

    async def item_json(self, call: MgmtCall[None]) -> Response:
        return json(call, await self._item(call))

    async def _item(self, call: MgmtCall[None]) -> ItemDetail:
        id_ = number_of(call, "item")
        async with self._reach.looking() as conn:
            return await views.item_detail(conn, id_)

    async def static(self, call: MgmtCall[None]) -> Response:
        one = self._files.get(call.path_params["name"])
        if one is None:
            raise NotFound("There is no such file.")
        return Response(one.body, headers=FOR_EVER, media_type=one.media_type)

    # Hubs.

    async def verify(self, call: MgmtCall[HubQuery]) -> Response:
        asked, databases = call.body, await self._reach.databases()
        if asked.mode != "denied" and not 0 < len(asked.challenge) <= callbacks.MAX_CHALLENGE_CHARS:
            raise BadInput("hub.challenge is missing, or too long.")
        await callbacks.verify(
            databases,
            call.path_params["token"],
            asked.mode,
            asked.topic,
            lease=asked.lease_seconds,
            reason=asked.reason,
        )
        return Response(asked.challenge, media_type="text/plain")

    async def deliver(self, call: MgmtCall[bytes]) -> Status:
        """The same answer whoever signed it: nobody learns here what is a good signature."""
        signature = call.headers.get("x-hub-signature", "")
        databases = await self._reach.databases()
        await callbacks.deliver(databases, call.path_params["token"], signature, call.body)
        return Status("heard")


def number_of(call: MgmtCall[Any], what: Literal["feed", "item"]) -> int:
    text = call.path_params["id"]
    if not _NUMBER.fullmatch(text) or int(text) > MAX_ID:
        raise NotFound(f"There is no {what} {text[:40]!a}.", hint=f"/{what}s lists them.")
    return int(text)


def html(call: MgmtCall[Any], body: str) -> Response:
    return conditional_response(call.headers, body.encode(), PAGE, HTML)


def json(call: MgmtCall[Any], value: object) -> Response:
    return conditional_response(call.headers, msgspec.json.encode(value), JSON, FRESH)
