"""Whatever is said to MGMT's endpoints, nothing breaks: every answer is one that the documents know."""

import json
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.mgmt.mgmt_process import Mgmt
from usher.api.context import MgmtEndpoint
from usher.api.endpoints import CURRENT_ENDPOINTS

KNOWN = {200, 304, 400, 404, 409, 413, 422}
WORDS = (
    "online",
    "crawled",
    "error",
    "built",
    "101c",
    "1",
    "h.example",
    "https://h.example/",
    "a\0b",
)
MORE = ("[::1]:5", "index-server", "crawler", "9" * 19, "-1", "NaN", "\ud7ff", "250ms")
TEXT = st.text(max_size=30) | st.sampled_from(WORDS + MORE)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
JSON = st.recursive(PLAIN, lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXT, some))
POSTS = [pytest.param(one, id=one.path) for one in CURRENT_ENDPOINTS if one.method == "POST"]
GETS = [pytest.param(one, id=one.path) for one in CURRENT_ENDPOINTS if one.method == "GET"]


def fields(endpoint: MgmtEndpoint) -> list[str]:
    found: tuple[str, ...] = getattr(endpoint.request, "__struct_encode_fields__", ())
    return [*found, "link", "n"]


def checked(status: int, body: bytes) -> None:
    assert status in KNOWN, body


@pytest.mark.parametrize("endpoint", POSTS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_bodies(door: Mgmt, endpoint: MgmtEndpoint, data: st.DataObject) -> None:
    names = st.sampled_from(fields(endpoint))
    body = data.draw(st.dictionaries(names, JSON, max_size=6) | JSON)
    told = door.ask("POST", endpoint.path, json.dumps(body).encode())
    checked(told.status, told.body)


@pytest.mark.parametrize("endpoint", GETS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_queries(door: Mgmt, endpoint: MgmtEndpoint, data: st.DataObject) -> None:
    names = st.sampled_from(fields(endpoint))
    query = data.draw(st.dictionaries(names, PLAIN.map(str), max_size=4))
    path = endpoint.path
    for word in ("{number}", "{id}", "{host}"):
        path = path.replace(word, quote(data.draw(TEXT), safe="") if word in path else "")
    told = door.ask("GET", f"{path}?{urlencode(query)}", headers=data.draw(headers()))
    checked(told.status, told.body)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, str]:
    word = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))
    names = st.sampled_from(["X-Usher-Host", "If-None-Match"])
    return draw(st.dictionaries(names, word, max_size=2))
