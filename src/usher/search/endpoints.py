"""The endpoints of a front-end: the search page, its JSON and Atom twins, and static files."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from usher.errors import BadInput, NotFound, Unreachable
from usher.http.atom import ATOM_MEDIA_TYPE, to_xml
from usher.http.server.component import QUERY, ComponentCall, ComponentEndpoint
from usher.http.server.conditional import conditional_response, server_origin
from usher.http.server.endpoint import OPEN, AccessRule, Endpoint
from usher.messages.server import Status
from usher.query.language import parse_query
from usher.search import assets, atom, json_results, openapi, result_view
from usher.search.broker import Broker
from usher.search.json_results import GovResults, SearchListing
from usher.search.openapi import HTML, GovQuery
from usher.search.pages import SearchPages
from usher.search.query_reports import QueryReports
from usher.search.search_result import MAX_HITS, SearchResult

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
REVALIDATE: Final = {"Cache-Control": "private, no-cache"}
HEADERS: Final = {"Content-Security-Policy": POLICY, **REVALIDATE}
CACHE_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
ROBOTS: Final = "User-agent: *\nDisallow: /search\nDisallow: /api/\n"
OPENSEARCH_MEDIA_TYPE: Final = "application/opensearchdescription+xml"
RETRY_LATER: Final = {"Retry-After": "2"}


def get(
    path: str,
    handler: Callable[[ComponentCall[None]], Awaitable[Any]],
    summary: str,
    response: Any = None,  # noqa: ANN401 - a type
    *,
    media: str = "text/plain",
    access: AccessRule = QUERY,
) -> ComponentEndpoint:
    return Endpoint("GET", path, handler, None, response, summary, access=access, media=media)


class SearchEndpoints:
    """The endpoints of one front-end."""

    def __init__(self, broker: Broker, reports: QueryReports) -> None:
        self._broker, self._reports = broker, reports
        loaded = assets.load_assets()
        self._assets = {asset.name: asset for asset in loaded.values()}
        self._pages = SearchPages(loaded)

    def endpoints(self) -> Sequence[ComponentEndpoint]:
        own = (
            get("/", self.page, "The search page", media=HTML),
            get("/search", self.page, "A page of results", media=HTML),
            get("/search.json", self.json, "The same results as JSON", SearchListing),
            get(atom.PATH, self.atom, "The same results as an Atom feed", media=ATOM_MEDIA_TYPE),
            get("/api/search", self.api, "Results in the form of Search.gov's API", GovResults),
            get("/readyz", self.readyz, "Is an index server available?", Status, access=OPEN),
            get(
                "/opensearch.xml",
                self.opensearch,
                "How browsers add this search engine",
                media=OPENSEARCH_MEDIA_TYPE,
                access=OPEN,
            ),
            get("/robots.txt", self.robots, "What crawlers may not fetch", access=OPEN),
            get(
                "/static/{name}", self.static, "Style, script and images", media="*/*", access=OPEN
            ),
        )
        return openapi.with_document(own)

    async def page(self, call: ComponentCall[None]) -> Response:
        text, page = query_and_page(call)
        if not text.strip():
            return html(self._pages.home())
        try:
            result = await self._search(text, page, verbatim=has_flag(call, "verbatim"))
        except Unreachable as error:
            body = self._pages.unavailable(parse_query(text), error.message)
            return html(body, error.status, RETRY_LATER)
        return html(self._pages.results(result, page))

    async def json(self, call: ComponentCall[None]) -> json_results.SearchListing:
        text, page = query_and_page(call)
        explain = has_flag(call, "explain")
        result = await self._search(
            text, page, verbatim=has_flag(call, "verbatim"), explain=explain
        )
        return json_results.listing(result, page, explain=explain)

    async def atom(self, call: ComponentCall[None]) -> Response:
        text, page = query_and_page(call)
        # Not reported: feed readers repeat the query every hour.
        result = await self._search(text, page, is_reported=False)
        body = to_xml(atom.atom_feed(result, page, origin=server_origin(call.headers)))
        changed = max((merged.hit.crawled for merged in result.results.hits), default=None)
        return conditional_response(call.headers, body, ATOM_MEDIA_TYPE, REVALIDATE, changed)

    async def api(self, call: ComponentCall[None]) -> json_results.GovResults:
        params = gov_query(call)
        query = parse_query(params.query)
        result = await self._broker.search(query, k=params.limit, offset=params.offset)
        if query and not params.offset:
            self._reports.add(query.text, result.seconds, result.number)
        return json_results.gov_results(result, params.offset, marked=params.enable_highlighting)

    async def opensearch(self, call: ComponentCall[None]) -> Response:
        body = self._pages.opensearch(server_origin(call.headers))
        return Response(body, media_type=OPENSEARCH_MEDIA_TYPE)

    async def readyz(self, _call: ComponentCall[None]) -> Status:
        """Ready for a load balancer when an index server is available."""
        cluster = self._broker.cluster
        if not any(map(cluster.is_available, cluster.servers)):
            raise Unreachable(
                "No index server is available.", hint="See `usher components rows` and /metrics."
            )
        return Status("ready")

    async def robots(self, _call: ComponentCall[None]) -> Response:
        return Response(ROBOTS, media_type="text/plain")

    async def static(self, call: ComponentCall[None]) -> Response:
        asset = self._assets.get(call.path_params["name"])
        if asset is None:
            raise NotFound("There is no such file.")
        return Response(asset.body, headers=CACHE_FOREVER, media_type=asset.media_type)

    async def _search(
        self,
        text: str,
        page: int,
        *,
        is_reported: bool = True,
        verbatim: bool = False,
        explain: bool = False,
    ) -> SearchResult:
        size = result_view.RESULTS_PER_PAGE
        query, offset = parse_query(text), (page - 1) * size
        if offset >= MAX_HITS:  # only the total is shown
            result = await self._broker.search(query, k=1, hosts=False)
            empty = msgspec.structs.replace(result.results, hits=())
            return msgspec.structs.replace(result, results=empty)
        result = await self._broker.search(
            query, k=size, offset=offset, hosts=True, verbatim=verbatim, explain=explain
        )
        if is_reported and query and page == 1:
            self._reports.add(query.text, result.seconds, result.number)
        return result


def query_and_page(call: ComponentCall[None]) -> tuple[str, int]:
    params = call.request.query_params
    return params.get("q", ""), result_view.page_number(params.get("page", "1"))


def has_flag(call: ComponentCall[None], name: str) -> bool:
    """Whether a parameter is given and not 0 or empty."""
    return call.request.query_params.get(name, "") not in ("", "0", "false")


def gov_query(call: ComponentCall[None]) -> GovQuery:
    """The parameters of a Search.gov query; unknown ones are ignored."""
    try:
        params = msgspec.convert(dict(call.request.query_params), GovQuery, strict=False)
    except msgspec.ValidationError as error:
        hint = f"limit is from 1 to 50, offset from 0 to {json_results.MAX_OFFSET}."
        raise BadInput(f"{error}.", hint=hint) from error
    if not params.query.strip():
        given = call.request.query_params.get("q", "")
        example = f"/api/search?{urlencode({'query': given or 'velvet'})}"
        hint = f"Did you mean query instead of q? {example}" if given else f"Example: {example}"
        raise BadInput("The parameter query is missing or empty.", hint=hint)
    return params


def html(body: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, {**HEADERS, **(headers or {})}, media_type="text/html")
