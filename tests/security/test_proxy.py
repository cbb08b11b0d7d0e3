"""The nginx configuration of docs/security.md: TLS in front of MGMT and of the search page."""

import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.mgmt.mgmt_process import mgmt
from support.mgmt.plain_components import one
from support.processes.commands import usher
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.site.nginx import CONFIG, NGINX

DOCS = Path(__file__).parents[2] / "docs"
OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not here")


def documented() -> str:
    text = (DOCS / "security.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- test: nginx -->\n```nginx\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


@contextmanager
def proxied(directory: Path, ports: dict[str, int]) -> Iterator[Path]:
    """The documented servers with other ports and a new certificate; gives the certificate."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        [str(OPENSSL), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    servers = documented().replace("/etc/usher/tls/cert.pem", str(certificate))
    servers = servers.replace("/etc/usher/tls/key.pem", str(key))
    servers = servers.replace("listen 8443 ssl", f"listen 127.0.0.1:{ports['mgmt_tls']} ssl")
    servers = servers.replace("listen 443 ssl", f"listen 127.0.0.1:{ports['front_tls']} ssl")
    servers = servers.replace("127.0.0.1:8411", f"127.0.0.1:{ports['mgmt']}")
    servers = servers.replace("127.0.0.1:8400", f"127.0.0.1:{ports['front']}")
    user = "user root;" if os.geteuid() == 0 else ""
    config = CONFIG.format(directory=directory, port=free_port(), root=directory, user=user)
    head, _, _ = config.rpartition("    server {")
    (directory / "nginx.conf").write_text(f"{head}{servers}}}\n")
    words = [str(NGINX), "-p", str(directory), "-e", str(directory / "error.log")]
    with subprocess.Popen([*words, "-c", str(directory / "nginx.conf")]) as process:
        try:
            assert eventually((directory / "pid").exists), (directory / "error.log").read_text()
            yield certificate
        finally:
            process.terminate()


def status(url: str, certificate: Path, headers: dict[str, str] | None = None) -> int:
    request = urllib.request.Request(url, headers=headers or {})  # noqa: S310 - our own server
    context = ssl.create_default_context(cafile=str(certificate))
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(error.code)


@contextmanager
def process(environment: dict[str, str], *words: str) -> Iterator[None]:
    clean = {name: value for name, value in os.environ.items() if "USHER" not in name}
    command = [sys.executable, "-m", "usher", *words]
    with subprocess.Popen(
        command, env={**clean, **environment}, stdout=subprocess.DEVNULL
    ) as child:
        try:
            yield
        finally:
            child.kill()


@pytest.mark.attack(11, "a machine calls MGMT behind the documented proxy without a token", "401")
def test_the_documented_proxy(database: str, tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("mgmt_tls", "front_tls", "front")}
    ran = usher("tokens", "add", "--type", "crawler", environment={"DATABASE_URL": database})
    settings = {"USHER_OPEN_LOOPBACK": "false"}
    with ExitStack() as stack:
        running = stack.enter_context(mgmt(database, tmp_path / "log", settings=settings))
        ports["mgmt"] = running.place[1]
        certificate = stack.enter_context(proxied(tmp_path, ports))
        url = f"https://localhost:{ports['mgmt_tls']}"
        for path in ("/get_links", "/get_servers_map", "/v1/jobs"):
            assert status(url + path, certificate) == 401
        assert status(f"{url}/v1/jobs", certificate, running.proof) == 200
        crawler = {
            "USHER_MGMT_URL": url,
            "USHER_TOKEN": ran.out.strip(),
            "SSL_CERT_FILE": str(certificate),
            "USHER_DATA": str(tmp_path / "crawler"),
        }
        stack.enter_context(process(crawler, "crawler", "--bind", "127.0.0.1:0"))
        online = "select count(*) from work.component where type = 'crawler'"
        assert eventually(lambda: one(database, online) == 1, seconds=60)
        front = {"USHER_MGMT_URL": url, "SSL_CERT_FILE": str(certificate)}
        front |= {"USHER_DATA": str(tmp_path / "front")}
        bind = f"127.0.0.1:{ports['front']}"
        stack.enter_context(process(front, "front", "--insecure", "--bind", bind))
        page = f"https://localhost:{ports['front_tls']}/"
        assert eventually(lambda: status(page, certificate) == 200, seconds=60)
