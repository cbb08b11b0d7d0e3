"""The demo site: a few pages that come with Usher, served on loopback, so that `usher demo` needs no network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from usher.errors import NotFound
from usher.http.server.component import ComponentCall, ComponentEndpoint, component_app
from usher.http.server.endpoint import OPEN, Endpoint
from usher.http.server.listen import Bind, serve_app

MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".txt": "text/plain",
    ".xml": "application/xml",
}


@asynccontextmanager
async def serve_site(bind: Bind) -> AsyncIterator[str]:
    """Serve the site and yield its URL."""
    directory = files("usher.local") / "site"
    pages = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}

    async def page(call: ComponentCall[None]) -> Response:
        name = call.path_params.get("name") or "index.html"
        if name not in pages:
            raise NotFound("The page does not exist.")
        return Response(pages[name], media_type=MEDIA_TYPES[name[name.rindex(".") :]])

    endpoints: list[ComponentEndpoint] = [
        Endpoint("GET", path, page, access=OPEN) for path in ("/", "/{name}")
    ]
    async with serve_app(component_app(endpoints), bind) as address:
        yield f"{address}/"
