"""A real nginx on loopback that serves a directory and logs each request."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.processes.free_port import free_port
from support.processes.killable import eventually

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
CONFIG = """
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log {directory}/error.log;
{user}
events {{ worker_connections 1024; }}
http {{
    include /etc/nginx/mime.types;
    log_format plain '$status $request_uri';
    access_log {directory}/access.log plain;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{ listen 127.0.0.1:{port} backlog=1024; root {root}; index index.html; keepalive_requests 1000000; }}
}}
"""


@dataclass(frozen=True, slots=True)
class Served:
    """Where it listens, and what it answered so far: status and path of each request."""

    port: int
    log: Path

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def requests(self) -> list[tuple[int, str]]:
        lines = (line.split(" ", 1) for line in self.log.read_text().splitlines())
        return [(int(status), path) for status, path in lines]


@contextmanager
def served(root: Path, directory: Path) -> Iterator[Served]:
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    text = CONFIG.format(directory=directory, port=port, root=root, user=user)
    (directory / "nginx.conf").write_text(text)
    assert NGINX is not None
    words = [
        NGINX,
        "-p",
        str(directory),
        "-e",
        str(directory / "error.log"),
        "-c",
        str(directory / "nginx.conf"),
    ]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually((directory / "pid").exists), (directory / "error.log").read_text()
        yield Served(port, directory / "access.log")
    finally:
        process.terminate()
        process.wait(10)
