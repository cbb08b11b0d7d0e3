"""What runs inside a contender's own process in bench/crawl.py; prints one JSON object.

`scrapy URL FILE` runs in a venv that has Scrapy and nothing of ours, `bare URL` in ours.
"""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import json
import resource
import time

OK = 200


def print_result(pages: int, seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    print(json.dumps({"pages": pages, "seconds": seconds, "cpu": cpu}))


def scrapy(url: str, file: str) -> None:
    import hashlib
    import re

    from scrapy import Spider
    from scrapy.crawler import CrawlerProcess
    from scrapy.http import HtmlResponse
    from scrapy.linkextractors import LinkExtractor

    # The settings of "Broad Crawls" in its documentation, without delays, for one host.
    settings = {
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "CONCURRENT_REQUESTS": 100,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
        "REACTOR_THREADPOOL_MAXSIZE": 20,
        "LOG_LEVEL": "WARNING",
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "DOWNLOAD_TIMEOUT": 15,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "AUTOTHROTTLE_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "MEMUSAGE_ENABLED": False,
        "FEEDS": {file: {"format": "jsonlines", "overwrite": True}},
    }
    pages = 0
    start = url.rpartition("/")[0]

    class Walker(Spider):  # type: ignore[misc]
        name = "walker"
        start_urls = [url]  # noqa: RUF012 - Scrapy requires a list
        links = LinkExtractor(allow=[f"^{re.escape(start)}/"])

        def parse(self, response):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            nonlocal pages
            pages += 1
            if not isinstance(response, HtmlResponse):
                return
            yield {
                "url": response.url,
                "title": response.xpath("//title/text()").get(),
                "length": len(" ".join(response.xpath("//body//text()").getall())),
                "sha1": hashlib.sha1(response.body, usedforsecurity=False).hexdigest(),
            }
            for link in self.links.extract_links(response):
                yield response.follow(link, self.parse)

    process = CrawlerProcess(settings)
    process.crawl(Walker)
    began = time.perf_counter()
    process.start()
    print_result(pages, time.perf_counter() - began)


async def fetch_all(url: str) -> tuple[int, float, float]:
    """Find all pages of the site, then fetch them with a client that does nothing else."""
    from usher import private_hosts
    from usher.crawl.http.fetch import Fetcher
    from usher.crawl.page.parse import parse_page
    from usher.urls import Url, parse

    async with Fetcher(
        "bench", allow=private_hosts.parse_allow_list("127.0.0.1"), connections_per_host=32
    ) as client:
        start = parse(url)
        if not isinstance(start, Url):
            raise TypeError(url)
        known, waiting, there = {start}, [start], list[Url]()
        while waiting:
            answer = await client.get(waiting.pop())
            if answer.status == OK:
                there.append(answer.url)
            if answer.status != OK or answer.media_type != "text/html":
                continue
            for text in parse_page(answer.body, answer.url, media_type="text/html").links:
                found = parse(text)
                if isinstance(found, Url) and found.host == start.host and found not in known:
                    known.add(found)
                    waiting.append(found)
        used = resource.getrusage(resource.RUSAGE_SELF)
        before, began, left = used.ru_utime + used.ru_stime, time.perf_counter(), list(there)

        async def work() -> None:
            while left:
                await client.get(left.pop())

        await asyncio.gather(*(work() for _ in range(32)))
        seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    return len(there), seconds, used.ru_utime + used.ru_stime - before


def bare(url: str) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        pages, seconds, cpu = runner.run(fetch_all(url))
    print(json.dumps({"pages": pages, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    if sys.argv[1] == "scrapy":
        scrapy(sys.argv[2], sys.argv[3])
    else:
        bare(sys.argv[2])
