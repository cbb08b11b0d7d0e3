"""The small site that comes with Usher: served on loopback for `usher demo`, so that a newcomer needs no network.

Comes from the files beside this one; goes to the crawler, like any site.
"""

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
    """Serve it; gives its address."""
    pages = {
        one.name: one.read_bytes()
        for one in (files("usher.local") / "site").iterdir()
        if one.is_file()
    }

    async def page(call: ComponentCall[None]) -> Response:
        name = call.path_params.get("name") or "index.html"
        if name not in pages:
            raise NotFound("There is no such page.")
        return Response(pages[name], media_type=MEDIA_TYPES[name[name.rindex(".") :]])

    endpoints: list[ComponentEndpoint] = [
        Endpoint("GET", path, page, access=OPEN) for path in ("/", "/{name}")
    ]
    async with serve_app(component_app(endpoints), bind) as address:
        yield f"{address}/"
