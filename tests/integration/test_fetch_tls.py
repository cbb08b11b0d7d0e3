"""TLS: valid certificates are accepted, and invalid ones are refused with the reason."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from support.site.crooked_http import GOOD
from support.site.fetches import AGENT, fetching, url
from usher.crawl.http.fetch import Fetcher, FetchLimits
from usher.errors import BadInput

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl makes the certificates"
)
Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True, slots=True)
class Papers:
    """Certificates in a directory: `ca.pem` and what it has signed."""

    path: Path

    @property
    def ca(self) -> Path:
        return self.path / "ca.pem"

    def make(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.path, check=True, capture_output=True)

    def sign(self, name: str, days: int, names: str) -> None:
        self.make("req", "-new", *KEY, "-keyout", f"{name}.key", "-out", "csr", "-subj", "/CN=x")
        (self.path / "ext").write_text(f"subjectAltName={names}\n")
        self.make(
            "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", str(days), "-extfile", "ext", "-out", f"{name}.pem",
        )  # fmt: skip


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    papers = Papers(tmp_path_factory.mktemp("papers"))
    papers.make(
        "req",
        "-x509",
        *KEY,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=Test",
        "-days",
        "2",
    )
    papers.sign("good", 2, "DNS:localhost,DNS:good.test,IP:127.0.0.1")
    papers.sign("expired", -1, "DNS:localhost")
    papers.sign("other", 2, "DNS:example.org")
    papers.make("req", "-x509", *KEY, "-keyout", "own.key", "-out", "own.pem", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost", "-days", "2")  # fmt: skip
    return papers


@dataclass(slots=True)
class Met:
    """What a server saw: the name it was called by, and the protocol that was agreed."""

    port: int = 0
    names: list[str | None] | None = None
    protocols: list[str | None] | None = None


@asynccontextmanager
async def serving(papers: Papers, name: str) -> AsyncIterator[Met]:
    met = Met(names=[], protocols=[])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers.path / f"{name}.pem", papers.path / f"{name}.key")
    context.set_alpn_protocols(["h2", "http/1.1"])

    def called(_socket: object, by: str | None, _context: object) -> None:
        assert met.names is not None
        met.names.append(by)

    context.sni_callback = called
    server = await asyncio.start_server(partial(_answer, met), "127.0.0.1", 0, ssl=context)
    met.port = server.sockets[0].getsockname()[1]
    try:
        yield met
    finally:
        server.close()
        await server.wait_closed()


async def _answer(met: Met, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    assert met.protocols is not None
    met.protocols.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(GOOD)
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("run", LOOPS)
def test_a_valid_certificate_is_accepted(run: Run, papers: Papers) -> None:
    async def main() -> None:
        names = {"localhost": ["127.0.0.1"], "good.test": ["127.0.0.1"]}
        async with serving(papers, "good") as met:
            async with fetching(ca=papers.ca, names=names) as fetcher:
                for host in ("localhost", "localhost", "good.test", "127.0.0.1"):
                    answer = await fetcher.get(url(f"https://{host}:{met.port}/"))
                    assert (answer.status, answer.body, answer.error) == (200, b"good", "")
            assert met.names == ["localhost", "good.test", None]
            assert met.protocols == ["http/1.1"] * 3
            await asyncio.sleep(0.05)

    run(main())


@pytest.mark.parametrize("run", LOOPS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("expired", "the certificate has expired"),
        ("other", "the certificate is for another name"),
        ("own", "the certificate is self-signed"),
    ],
)
def test_an_invalid_certificate_is_refused(run: Run, papers: Papers, name: str, words: str) -> None:
    async def main() -> None:
        async with serving(papers, name) as met:
            async with fetching(ca=papers.ca) as fetcher:
                answer = await fetcher.get(url(f"https://localhost:{met.port}/"))
            await asyncio.sleep(0.05)
        assert (answer.status, answer.kind, answer.error) == (None, "tls", words)

    run(main())


async def test_an_unknown_issuer_is_refused(papers: Papers) -> None:
    async with serving(papers, "good") as met:
        async with fetching() as fetcher:
            answer = await fetcher.get(url(f"https://localhost:{met.port}/"))
        await asyncio.sleep(0.05)
    assert answer.error == "the certificate has an unknown issuer"


@pytest.mark.parametrize("run", LOOPS)
def test_a_host_without_tls(run: Run) -> None:
    async def main() -> None:
        async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, fetching() as fetcher:
            answer = await fetcher.get(url(f"https://localhost:{port}/"))
        assert (answer.kind, answer.error) == ("tls", "the host does not speak TLS")

    run(main())


@pytest.mark.parametrize("run", LOOPS)
def test_a_host_that_fails_the_handshake(run: Run) -> None:
    async def main() -> None:
        async def leave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        server = await asyncio.start_server(leave, "127.0.0.1", 0)
        silent = socket.create_server(("127.0.0.1", 0))
        limits = FetchLimits(connect=0.3)
        async with server, fetching(limits) as fetcher:
            left = await fetcher.get(
                url(f"https://localhost:{server.sockets[0].getsockname()[1]}/")
            )
            mute = await fetcher.get(url(f"https://localhost:{silent.getsockname()[1]}/"))
        silent.close()
        assert (left.kind, left.error) == (
            "tls",
            "the connection was lost during the TLS handshake",
        )
        assert (mute.kind, mute.error) == ("connect", "no connection within 0.3 s")
        await asyncio.sleep(0.05)

    run(main())


def test_an_invalid_ca_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    for name in ("bad.pem", "none.pem"):
        with pytest.raises(BadInput, match="holds no certificates"):
            Fetcher(AGENT, ca=tmp_path / name)
