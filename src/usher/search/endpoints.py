"""What a front-end can be asked: the search page, the same as data, and the files it needs.

Comes from browsers and programs; goes to the broker. Whatever stands in a query, the answer is a page that can be used.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from usher.errors import BadInput, NotFound, Unreachable
from usher.http.atom import ATOM_MEDIA_TYPE, to_xml
from usher.http.server.component import QUERY, ComponentCall, ComponentEndpoint
from usher.http.server.conditional import conditional_response, server_origin
from usher.http.server.endpoint import OPEN, Endpoint
from usher.messages.server import Status
from usher.query.language import parse_query
from usher.search import assets, atom, json_results, result_view
from usher.search.broker import Broker
from usher.search.pages import SearchPages
from usher.search.query_reports import QueryReports
from usher.search.search_result import MAX_HITS, SearchResult

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
FRESH: Final = {"Cache-Control": "private, no-cache"}
HEADERS: Final = {"Content-Security-Policy": POLICY, **FRESH}
FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
ROBOTS: Final = "User-agent: *\nDisallow: /search\nDisallow: /api/\n"
RETRY: Final = {"Retry-After": "2"}


class GovQuery(Struct, kw_only=True):
    """As Search.gov's results API names it; `affiliate` and `access_key` are heard and mean nothing here."""

    query: str = ""
    limit: Annotated[int, Meta(ge=1, le=50)] = 20
    offset: Annotated[int, Meta(ge=0, le=json_results.MOST_OFFSET)] = 0
    enable_highlighting: bool = True
    affiliate: str = ""
    access_key: str = ""


class SearchEndpoints:
    """The endpoints of one front-end."""

    def __init__(self, broker: Broker, reports: QueryReports) -> None:
        self._broker, self._reports = broker, reports
        self._assets = assets.load_assets()
        self._files = {one.name: one for one in self._assets.values()}
        self._pages = SearchPages(self._assets)

    def endpoints(self) -> Sequence[ComponentEndpoint]:
        return (
            Endpoint("GET", "/", self.page, access=QUERY),
            Endpoint("GET", "/search", self.page, access=QUERY),
            Endpoint("GET", "/search.json", self.json, access=QUERY),
            Endpoint("GET", atom.PATH, self.atom, access=QUERY),
            Endpoint("GET", "/api/search", self.api, access=QUERY),
            Endpoint("GET", "/readyz", self.readyz, access=OPEN),
            Endpoint("GET", "/opensearch.xml", self.opensearch, access=OPEN),
            Endpoint("GET", "/robots.txt", self.robots, access=OPEN),
            Endpoint("GET", "/static/{name}", self.static, access=OPEN),
        )

    async def page(self, call: ComponentCall[None]) -> Response:
        text, page = asked(call)
        if not text.strip():
            return html(self._pages.home())
        try:
            answer = await self._answer(text, page)
        except Unreachable as error:
            body = self._pages.trouble(parse_query(text), error.message)
            return html(body, error.status, RETRY)
        return html(self._pages.results(answer, page))

    async def json(self, call: ComponentCall[None]) -> json_results.SearchListing:
        text, page = asked(call)
        return json_results.listing(await self._answer(text, page), page)

    async def atom(self, call: ComponentCall[None]) -> Response:
        text, page = asked(call)
        # A reader asks every hour; what people ask is told by the pages they ask for.
        answer = await self._answer(text, page, noted=False)
        feed = atom.feed_of(answer, page, origin=server_origin(call.headers))
        return conditional_response(
            call.headers, to_xml(feed), ATOM_MEDIA_TYPE, FRESH, atom.changed(answer)
        )

    async def api(self, call: ComponentCall[None]) -> json_results.GovResults:
        wanted = gov_query(call)
        query = parse_query(wanted.query)
        answer = await self._broker.search(query, k=wanted.limit, offset=wanted.offset)
        if query and not wanted.offset:
            self._reports.note(query.text, answer.seconds)
        return json_results.gov_results(answer, wanted.offset, marked=wanted.enable_highlighting)

    async def opensearch(self, call: ComponentCall[None]) -> Response:
        body = self._pages.opensearch(server_origin(call.headers))
        return Response(body, media_type="application/opensearchdescription+xml")

    async def readyz(self, _call: ComponentCall[None]) -> Status:
        """Ready when the map is known and a server of it answers: a load balancer then sends searches here."""
        hall = self._broker.hall
        if not any(map(hall.asked, hall.servers)):
            raise Unreachable(
                "No index server can be asked.", hint="See `usher components rows` and /metrics."
            )
        return Status("ready")

    async def robots(self, _call: ComponentCall[None]) -> Response:
        return Response(ROBOTS, media_type="text/plain")

    async def static(self, call: ComponentCall[None]) -> Response:
        one = self._files.get(call.path_params["name"])
        if one is None:
            raise NotFound("There is no such file.")
        return Response(one.body, headers=FOR_EVER, media_type=one.media_type)

    async def _answer(self, text: str, page: int, *, noted: bool = True) -> SearchResult:
        query, offset = parse_query(text), (page - 1) * result_view.RESULTS_PER_PAGE
        if offset >= MAX_HITS:  # how many there are is told, and nothing shown
            answer = await self._broker.search(query, k=1, hosts=False)
            empty = msgspec.structs.replace(answer.results, found=())
            return msgspec.structs.replace(answer, results=empty)
        answer = await self._broker.search(
            query, k=result_view.RESULTS_PER_PAGE, offset=offset, hosts=True
        )
        if noted and query and page == 1:
            self._reports.note(query.text, answer.seconds)
        return answer


def asked(call: ComponentCall[None]) -> tuple[str, int]:
    given = call.request.query_params
    return given.get("q", ""), result_view.page_number(given.get("page", "1"))


def gov_query(call: ComponentCall[None]) -> GovQuery:
    """Names that only Search.gov knows are let pass."""
    try:
        return msgspec.convert(dict(call.request.query_params), GovQuery, strict=False)
    except msgspec.ValidationError as error:
        hint = f"limit is from 1 to 50, offset from 0 to {json_results.MOST_OFFSET}."
        raise BadInput(f"{error}.", hint=hint) from error


def html(body: str, status: int = 200, more: dict[str, str] | None = None) -> Response:
    return Response(body, status, {**HEADERS, **(more or {})}, media_type="text/html")
