"""A component and two MGMT processes that name different incarnations for a moment after a restore."""

import itertools

from starlette.responses import Response

from usher.http.client.mgmt_client import Client
from usher.http.server.component import QUERY, ComponentCall, ComponentEndpoint, serve_component
from usher.http.server.endpoint import Endpoint
from usher.http.server.listen import read_bind
from usher.messages.fields import INCARNATION_HEADER

COMPONENT = (
    b'{"host": "here:1", "type": "crawler", "state": "online", "health": "healthy", "row": null}'
)


async def test_a_component_declares_itself_once_for_each_answer() -> None:
    """It declared itself again for each answer to its declaration, until Python's stack was full."""
    incarnations, declarations = itertools.cycle(["old", "new"]), itertools.count()

    async def declare(_call: ComponentCall[None]) -> Response:
        next(declarations)
        headers = {INCARNATION_HEADER: next(incarnations)}
        return Response(COMPONENT, headers=headers, media_type="application/json")

    endpoints: list[ComponentEndpoint] = [
        Endpoint("POST", "/set_component_state", declare, access=QUERY)
    ]
    async with (
        serve_component(endpoints, read_bind("127.0.0.1:0")) as address,
        Client(address, host="here:1") as client,
    ):
        await client.set_state("online", type="crawler")
        await client.set_state("online", type="crawler")
        await client.set_state("online", type="crawler")
    assert next(declarations) == 5, (
        "three calls, and one declaration after each change but the first"
    )
