"""A small polite crawler. Run it as crawler.py http://MGMT:8411 OWN-ADDRESS:PORT DIRECTORY [TOKEN]."""

import functools
import gzip
import json
import os
import re
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import Request, urlopen
from urllib.robotparser import RobotFileParser

MGMT, HOST, DIRECTORY, *TOKEN = sys.argv[1:]
HEADERS = {"X-Usher-Host": HOST} | ({"Authorization": f"Bearer {TOKEN[0]}"} if TOKEN else {})
NAME = "example-crawler"


def mgmt(path, **body):
    data = json.dumps(body).encode() if body else None
    return json.load(urlopen(Request(MGMT + path, data, HEADERS), timeout=60))


@functools.cache
def robots(url):
    rules = RobotFileParser(url)
    rules.read()
    return rules


def record(fields, block):  # of the WARC file: each is a gzip member
    head = f"WARC/1.1\r\nWARC-Record-ID: <{uuid.uuid4().urn}>\r\nContent-Length: {len(block)}\r\n"
    head += f"WARC-Date: {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\r\n{fields}\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n")


def visit(link, delay, file):  # returns what MGMT wants to know about the page
    try:
        rules = robots(urljoin(link, "/robots.txt"))
        if not rules.can_fetch(NAME, link):
            return {"link": link, "result": "barred"}
        time.sleep(max(delay, float(rules.crawl_delay(NAME) or 0)))
        answer = urlopen(Request(link, headers={"User-Agent": NAME}), timeout=30)
        body = answer.read(10_000_000)
    except OSError as error:  # the server did not answer, or with an HTTP error
        return {"link": link, "result": "failure", "status": getattr(error, "code", None)}
    http = f"HTTP/1.1 200 OK\r\nContent-Type: {answer.headers['Content-Type']}\r\n\r\n".encode()
    fields = f"WARC-Type: response\r\nWARC-Target-URI: {link}\r\nContent-Type: application/http\r\n"
    file.write(record(fields, http + body))
    hrefs = re.findall(r"""<a\s[^>]*?href=["']?([^"'\s>]+)""", body.decode("utf-8", "replace"))
    mgmt("/add_links", links=[urljoin(answer.url, href) for href in ["", *hrefs]], found_on=link)
    return {"link": link, "result": "success" if answer.url == link else "moved", "status": 200}


Path(DIRECTORY, "get_chunk").mkdir(parents=True, exist_ok=True)
os.chdir(DIRECTORY)  # the server answers GET /get_health_status and GET /get_chunk/ID with files
Path("get_health_status").write_text('{"status": "healthy"}')
address, port = HOST.split(":")
server = ThreadingHTTPServer((address, int(port)), SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
mgmt("/set_component_state", state="online", type="crawler", anew=True)
while True:
    time.sleep(1)
    if chunk := mgmt("/get_links?pages=1"):
        number = chunk["chunk_id"]
        with Path(f"get_chunk/{number}").open("wb") as file:
            file.write(record("WARC-Type: warcinfo\r\n", b"software: example-crawler\r\n"))
            pages = [visit(page["link"], page["crawl_delay"], file) for page in chunk["pages"]]
        mgmt("/set_content_chunk_metadata", chunk_id=number, state="crawled", pages=pages)
