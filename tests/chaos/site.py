"""The web site: `python -m chaos.site LOG` serves every host of `pages` and logs each request with its time."""

import signal
import sys
import threading
import time
from pathlib import Path

from chaos.pages import EDITION_SECONDS, Page, start_page
from support.site.website import NOT_FOUND, Request, Response, Website

ROBOTS = b"User-agent: *\nDisallow: /private/\n"


def answer(request: Request) -> Response:
    host = request.headers.get("host", "")
    if request.route == "/robots.txt":
        return Response(ROBOTS, content_type="text/plain")
    if request.route == "/":
        return Response(start_page(host).encode())
    number = request.route.removeprefix("/page/")
    if not number.isdigit():
        return NOT_FOUND
    edition = int(time.time()) // EDITION_SECONDS
    return Response(Page(host, int(number)).text(edition).encode())


def main() -> None:
    log = Path(sys.argv[1]).open("a", buffering=1)  # noqa: SIM115 - open for as long as the process runs

    def logged(request: Request) -> Response:
        response = answer(request)
        words = (f"{request.at:.3f}", request.headers.get("host", "-"), request.route)
        log.write("\t".join((*words, str(response.status))) + "\n")
        return response

    site = Website({"/*": logged}, host="0.0.0.0", port=80, max_requests=10**9)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with site:
        ended.wait()


if __name__ == "__main__":
    main()
