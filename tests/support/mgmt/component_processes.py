"""Components of the tests: small, real processes that talk to MGMT as its documents say, and can be killed or frozen.

Run as `python tests/support/mgmt/component_processes.py ROLE ADDRESS,ADDRESS PORT BOOK [ROW]`.
"""

import http.client
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.queue.logged_jobs import write

LEASE = 3.0
SAFE = 0.7  # of a lease: after that a crawler touches nothing of its chunk


class Health(BaseHTTPRequestHandler):
    """Answers the watchdog, and hands out whatever chunk is asked for."""

    def do_GET(self) -> None:
        body = b'{"status": "healthy"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Member:
    """One component: an address of its own, and whichever MGMT answers."""

    def __init__(self, kind: str, addresses: list[str], port: int, book: str) -> None:
        self.kind, self.addresses, self.book = kind, addresses, book
        self.host = f"127.0.0.1:{port}"
        server = ThreadingHTTPServer(("127.0.0.1", port), Health)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:  # noqa: ANN401 - JSON
        """An answer of the first MGMT that gives one."""
        while True:
            for address in self.addresses:
                where = urlsplit(address)
                line = http.client.HTTPConnection(str(where.hostname), where.port, timeout=5)
                try:
                    sent = None if body is None else json.dumps(body).encode()
                    line.request(method, path, sent, {"X-Usher-Host": self.host})
                    reply = line.getresponse()
                    told = json.loads(reply.read() or b"null")
                    if reply.status < 500:
                        return reply.status, told
                except (OSError, http.client.HTTPException, ValueError):
                    pass
                finally:
                    line.close()
            time.sleep(0.1)

    def online(self, **more: object) -> None:
        self.ask("POST", "/set_component_state", {"state": "online", "type": self.kind, **more})


def crawl(me: Member) -> None:
    me.online()
    while True:
        asked = time.monotonic()
        _, pack = me.ask("GET", "/get_links?pages=true")
        if not pack.get("links"):
            time.sleep(0.1)
            continue
        for page in pack["pages"]:
            if time.monotonic() - asked > LEASE * SAFE:
                break  # another component may have it by now
            write(
                me.book,
                "fetch",
                urlsplit(page["link"]).hostname,
                time.time(),
                page["link"],
                me.host,
            )
            time.sleep(page["crawl_delay"])
        else:
            state = {"chunk_id": pack["chunk_id"], "state": "crawled"}
            me.ask("POST", "/set_content_chunk_metadata", state)


def build(me: Member) -> None:
    me.online()
    while True:
        _, found = me.ask("GET", "/get_content_chunk_metadata")
        for one in found:
            state = {"chunk_id": one["chunk_id"], "state": "built"}
            me.ask("POST", "/set_index_chunk_metadata", state)
        if not found:
            time.sleep(0.1)


def serve(me: Member, row: int) -> None:
    """What it loads is on its disk: a restarted server has it still."""
    me.online(row=row)
    disk = Path(f"{me.book}.{me.host}")
    held = {int(line) for line in disk.read_text().split()} if disk.exists() else set()
    me.ask("POST", "/v1/holdings", {"chunk_ids": sorted(held)})
    while True:
        _, found = me.ask("GET", "/get_chunks")
        for one in found:
            write(str(disk), one["chunk_id"])
            me.ask("POST", "/set_chunk_loaded", {"chunk_id": one["chunk_id"]})
        if not found:
            time.sleep(0.1)


def main() -> None:
    role, addresses, port, book, *more = sys.argv[1:]
    names = {"crawler": "crawler", "builder": "index-builder", "server": "index-server"}
    me = Member(names[role], addresses.split(","), int(port), book)
    if role == "crawler":
        crawl(me)
    elif role == "builder":
        build(me)
    else:
        serve(me, int(more[0]))


if __name__ == "__main__":
    main()
