"""What the HTTP API declines, and the errors it sends."""

import http.client
import json
import socket
import time

import pytest

from support.mgmt.mgmt_process import Mgmt


@pytest.mark.parametrize("way", ["half/pass", "full/maybe", "FULL/pass", "full", "full/pass/x"])
def test_entree_refuses_unknown_words(door: Mgmt, way: str) -> None:
    told = door.ask("PUT", f"/api/entree/{way}", {"host": "guess.example"})
    assert told.problem == (404, "not_found")
    assert way in told.json["detail"]


@pytest.mark.parametrize("host", ["", "a.example/x", "me@a.example", "a.example?x"])
def test_entree_refuses_invalid_hosts(door: Mgmt, host: str) -> None:
    told = door.ask("PUT", "/api/entree/single/pass", {"host": host, "path": "/"})
    assert told.problem == (422, "bad_input")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "empty"),
        (b'{"urls": [', 400, "not JSON"),
        (b"urls=x", 400, "not JSON"),
        (b'{"urls": ["\xff"]}', 400, "utf-8"),
        (b'{"urls": ["\\ud800"]}', 400, "not JSON"),
        (b"[" * 100_000, 422, "Expected `object`"),
        (b'{"urls": "https://a.example"}', 422, "Expected `array`, got `str` - at `$.urls`"),
        (b'{"urls": [1]}', 422, "`$.urls[0]`"),
        (b"{}", 422, "missing required field `urls`"),
        (b'{"urls": [], "kind": "half"}', 422, "`$.kind`"),
        (b'{"urls": [], "dry-run": true}', 422, "unknown field `dry-run`"),
    ],
)
def test_bodies_that_cannot_be_used(door: Mgmt, body: bytes, status: int, said: str) -> None:
    told = door.ask("POST", "/v1/knock", body)
    assert told.problem == (status, "malformed" if status == 400 else "bad_input")
    assert said in told.json["detail"]


def test_too_many_urls(door: Mgmt) -> None:
    many = [f"many.example/{n}" for n in range(10_001)]
    assert door.knock(*many).problem == (413, "too_large")
    assert door.knock(*many[1:], answers=False, dry_run=True).json["counts"]["admit"] == 10_000


def test_too_large_a_body_is_declined_and_the_sender_hears_it(door: Mgmt) -> None:
    assert door.ask("POST", "/v1/knock", b" " * 20_000_000).problem == (413, "too_large")


def heard(line: socket.socket) -> tuple[bytes, bool]:
    """All that the server sends, and whether it closed the connection."""
    got = b""
    while part := line.recv(65_536):
        got += part
    return got, True


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
def test_a_body_that_says_it_is_too_large_is_not_waited_for(door: Mgmt, expect: str) -> None:
    head = f"POST /v1/knock HTTP/1.1\r\nHost: localhost\r\n{door.proof_line}"
    head += f"Content-Length: 1000000000\r\n{expect}\r\n"
    with door.dial() as line:
        began = time.monotonic()
        line.sendall(head.encode())
        assert line.recv(1024).startswith(b"HTTP/1.1 413 ")
        assert time.monotonic() - began < 1.5
        heard(line)
    assert time.monotonic() - began < 10


def test_a_body_without_a_length_is_read_no_further_than_the_limit(door: Mgmt) -> None:
    part = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    with door.dial() as line:
        head = f"POST /v1/knock HTTP/1.1\r\nHost: localhost\r\n{door.proof_line}"
        line.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with pytest.raises(OSError, match=r"(?i)reset|pipe"):
            for _ in range(200):
                line.sendall(part)


def test_encoded_bodies_are_declined(door: Mgmt) -> None:
    told = door.ask("POST", "/v1/knock", b"\x1f\x8b", {"Content-Encoding": "gzip"})
    assert told.problem == (415, "unsupported_encoding")


def test_what_is_not_there(door: Mgmt) -> None:
    assert door.get("/nothing").problem == (404, "not_found")
    assert door.get("/v1/knock/").problem == (404, "not_found")
    told = door.ask("DELETE", "/v1/knock")
    assert told.problem == (405, "method_not_allowed")
    assert told.headers["allow"] == "POST"
    assert door.ask("POST", "/healthz", {}).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost:8411"}, 200),
        ({"Host": "[::1]:8411"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}, 200),
    ],
)
def test_pages_of_other_sites_may_not_knock(
    door: Mgmt, headers: dict[str, str], status: int
) -> None:
    assert door.ask("POST", "/v1/knock", {"urls": []}, headers).status == status


def test_many_requests_on_one_connection(door: Mgmt) -> None:
    """Requests one after the other on one connection, some of them bad, do not disturb each other."""
    line = http.client.HTTPConnection(*door.place, timeout=30)
    for body, status in ((b'{"urls": []}', 200), (b"{", 400), (b'{"urls": [1]}', 422)) * 3:
        line.request("POST", "/v1/knock", body, door.proof)
        got = line.getresponse()
        assert (got.status, bool(json.loads(got.read()))) == (status, True)
    line.close()
