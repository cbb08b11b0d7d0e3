"""The endpoints of the console in MGMT: every page with its JSON twin, the forms of actions, and the sign-in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from usher.api.access import CONSOLE_ADMIN, CONSOLE_READ, READ
from usher.api.browser_sessions import accepts_html, redirect_to_login
from usher.api.context import MgmtCall, MgmtEndpoint
from usher.api.openapi import HTML_MEDIA_TYPE, Endpoints
from usher.api.server import ExtraEndpoints
from usher.console import explanation, landing_page, login, render
from usher.console.action_pages import action_form, do_action, preview_form
from usher.console.charts import charts_page
from usher.console.lists import (
    cluster,
    crawls,
    events,
    hosts,
    job_details,
    job_types,
    jobs,
    page_reasons,
    pages,
    refused,
    removals,
    searches,
    tasks,
    tokens,
)
from usher.console.lists.log_lines import RecentLog, log_view
from usher.console.lists.settings import settings_view
from usher.console.overview import Overview
from usher.console.page import ConsolePage, ConsoleView
from usher.console.render import ConsoleTemplates
from usher.errors import NotFound, UsherError
from usher.feeds.pages.endpoints import feed_endpoints
from usher.http.server.endpoint import OPEN, AccessRule, Endpoint
from usher.http.server.middleware import HttpError
from usher.settings import LoadedSettings, Settings

JSON: Final = "application/json"
HTML_HEADERS: Final = {"Cache-Control": "no-store", "Content-Security-Policy": render.POLICY}
IMMUTABLE: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
OVERVIEW_DATA_PATH: Final = "/status.json"
Handler = Callable[[MgmtCall[Any]], Awaitable[Response]]


def console_and_feeds(loaded: LoadedSettings) -> ExtraEndpoints:
    """The endpoints that `usher mgmt` serves besides its own: the console and the pages of feeds."""

    @asynccontextmanager
    async def open_endpoints(settings: Settings) -> AsyncIterator[Endpoints]:
        recent = RecentLog()
        with recent.attached():
            async with feed_endpoints(settings) as feeds:
                yield (*ConsoleEndpoints(loaded, recent).endpoints(), *feeds)

    return open_endpoints


class ConsoleEndpoints:
    """The endpoints of the console."""

    def __init__(self, loaded: LoadedSettings, recent: RecentLog | None = None) -> None:
        assets = render.load_assets()
        self._files = {asset.name: asset for asset in assets.values()}
        self._templates = ConsoleTemplates(assets)
        self._overview = Overview(loaded.settings)
        self._settings = settings_view(loaded)
        self._log = log_view(recent or RecentLog())

    def endpoints(self) -> Endpoints:
        return (
            self._home("The console for browsers, links for programs"),
            self._data(OVERVIEW_DATA_PATH, self._overview.status, "Status"),
            *self._page("/charts", charts_page, "Charts of the last hour, day or 30 days"),
            *self._page("/explain", explanation.explain_page, "Where a URL is on its path"),
            *self._page("/pages", pages.pages_page, "Pages of the guestbook"),
            *self._page("/pages/errors", page_reasons.reasons_page, "Pages by reason"),
            *self._page("/pages/refused", refused.refused_page, "A sample of refused URLs"),
            *self._page("/crawls", crawls.crawls_page, "Open crawls of hosts with a forecast"),
            *self._page("/hosts", hosts.hosts_page, "Hosts"),
            *self._page("/hosts/{name}", hosts.host_page, "One host"),
            *self._page("/jobs", jobs.jobs_page, "Jobs that wait, run or ended"),
            *self._page("/jobs/{id}", job_details.job_page, "One job"),
            *self._page("/types", job_types.types_page, "Types of jobs"),
            *self._page("/tasks", tasks.tasks_page, "Tasks and resources"),
            *self._page("/components", cluster.components_page, "Components"),
            *self._page("/components/{host}", cluster.component_page, "One component"),
            *self._page("/chunks", cluster.chunks_page, "Chunks"),
            *self._page("/chunks/{id}", cluster.chunk_page, "One chunk"),
            *self._page("/searches", searches.searches_page, "Statistics", access=CONSOLE_ADMIN),
            *self._page("/removals", removals.removals_page, "Removals of pages"),
            *self._page("/events", events.events_page, "Events, and actions of operators"),
            *self._page("/tokens", tokens.tokens_page, "Tokens, without secrets"),
            *self._page("/settings", self._settings, "Settings, without secrets"),
            *self._page("/log", self._log, "Recent log lines of this MGMT", access=CONSOLE_ADMIN),
            self._get("/find", self.find, "Redirect to a URL, host, job or chunk"),
            *self._page(
                "/actions/{action}", action_form, "The form of an action", access=CONSOLE_ADMIN
            ),
            self._post("/actions/{action}", self.act, "Do an action", CONSOLE_ADMIN),
            self._post(
                "/actions/{action}/preview", self.preview, "What an action would do", CONSOLE_ADMIN
            ),
            self._get("/login", self.login_form, "The form to sign in", access=OPEN),
            self._post("/login", self.sign_in, "Sign in with a token or a link", OPEN),
            self._post("/logout", login.sign_out, "Sign out", CONSOLE_READ),
            self._get("/static/{name}", self.static, "Files that pages need", "text/css", OPEN),
        )

    def _home(self, summary: str) -> MgmtEndpoint:
        return Endpoint(
            "GET", "/", self.home, None, dict[str, Any], summary, access=READ, media=HTML_MEDIA_TYPE
        )

    def _page(
        self, path: str, view: ConsoleView, summary: str, access: AccessRule = CONSOLE_READ
    ) -> Endpoints:
        """A page and its twin; the twin comes first, because a pattern of the page may match it."""

        async def show(call: MgmtCall[Any]) -> Response:
            return await self.shown(call, view)

        data = self._data(f"{path}.json", view, summary, access)
        return data, self._get(path, show, f"{summary}, as a page", access=access)

    def _data(
        self, path: str, view: ConsoleView, summary: str, access: AccessRule = CONSOLE_READ
    ) -> MgmtEndpoint:
        async def send(call: MgmtCall[Any]) -> Response:
            return Response(render.to_json((await view(call)).data), media_type=JSON)

        text = f"{summary}, as data"
        return Endpoint("GET", path, send, None, dict[str, Any], text, access=access)

    def _get(
        self,
        path: str,
        handler: Handler,
        summary: str,
        media: str = HTML_MEDIA_TYPE,
        access: AccessRule = CONSOLE_READ,
    ) -> MgmtEndpoint:
        return Endpoint("GET", path, handler, None, None, summary, access=access, media=media)

    def _post(self, path: str, handler: Handler, summary: str, access: AccessRule) -> MgmtEndpoint:
        return Endpoint(
            "POST", path, handler, bytes, None, summary, access=access, media=HTML_MEDIA_TYPE
        )

    async def shown(self, call: MgmtCall[Any], view: ConsoleView) -> Response:
        """The page, or a page with the error."""
        try:
            return self._html(call, await view(call))
        except UsherError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return self._error(call, error)

    def _html(self, call: MgmtCall[Any], page: ConsolePage, status: int = 200) -> Response:
        caller, url = call.caller, call.request.url
        html = self._templates.page(
            page,
            token=caller.token,
            session=caller.session,
            path=url.path,
            twin=twin_path(call) if page.data else "",
        )
        return Response(html, status, HTML_HEADERS, media_type=HTML_MEDIA_TYPE)

    def _error(self, call: MgmtCall[Any], error: UsherError) -> Response:
        page = ConsolePage("error.html", "That did not work", {"error": error}, {})
        return self._html(call, page, error.status)

    async def home(self, call: MgmtCall[Any]) -> Response:
        """The first screen for a browser, which must sign in; a list of links for programs."""
        if accepts_html(call.headers.get("accept", "")):
            if call.caller.token is None:
                redirect_to_login(call.request)
            response = await self.shown(call, self._overview.show)
        else:
            body = render.to_json(landing_page.landing_data())
            response = Response(body, media_type=JSON)
        response.headers["Vary"] = "Accept, Cookie"
        return response

    async def find(self, call: MgmtCall[Any]) -> Response:
        try:
            return RedirectResponse(await explanation.find_path(call), 303)
        except UsherError as error:
            return self._error(call, error)

    async def act(self, call: MgmtCall[bytes]) -> Response:
        """Do an action and show its result."""
        return await self.shown(call, do_action)

    async def preview(self, call: MgmtCall[bytes]) -> Response:
        return await self.shown(call, preview_form)

    async def login_form(self, call: MgmtCall[Any]) -> Response:
        return self._login_page(call, "", 200)

    async def sign_in(self, call: MgmtCall[bytes]) -> Response:
        try:
            return await login.sign_in(call)
        except (UsherError, HttpError) as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return self._login_page(call, f"{error.message} {error.hint}", error.status)

    def _login_page(self, call: MgmtCall[Any], message: str, status: int) -> Response:
        html = login.login_page(self._templates, call, message)
        return Response(html, status, HTML_HEADERS, media_type=HTML_MEDIA_TYPE)

    async def static(self, call: MgmtCall[None]) -> Response:
        asset = self._files.get(call.path_params["name"])
        if asset is None:
            raise NotFound("There is no such file.")
        return Response(asset.body, headers=IMMUTABLE, media_type=asset.media_type)


def twin_path(call: MgmtCall[Any]) -> str:
    """The address of the data of the page that was asked for; empty if it is the result of a form."""
    url = call.request.url
    if call.request.method != "GET":
        return ""
    path = OVERVIEW_DATA_PATH if url.path == "/" else f"{url.path}.json"
    return f"{path}?{url.query}" if url.query else path
