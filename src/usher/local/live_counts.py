"""What the processes of this run have counted, from their metrics: pages as they arrive, links that the door refused.

The crawler reports pages to MGMT when their chunk is complete; a person wants to see them earlier.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Self

from usher.errors import UsherError
from usher.http.client.pool import HttpPool, mgmt_pool
from usher.local.ports import LOOPBACK, Ports

TIMEOUT_SECONDS: Final = 2.0
FETCHED_RESULTS: Final = frozenset({"success", "unchanged", "gone", "moved"})
_SAMPLE: Final = re.compile(
    rb'^(usher_crawl_pages_total|usher_door_verdicts_total)\{(?:result|reason)="([a-z_]+)"\} ([0-9.e+]+)$',
    re.MULTILINE,
)


@dataclass(slots=True)
class MetricTotals:
    """The sum of a process's counters, also if the process is restarted and counts from zero again."""

    totals: Counter[str] = field(default_factory=Counter)
    _last: Counter[str] = field(default_factory=Counter)

    def add(self, samples: Counter[str]) -> None:
        for name, value in samples.items():
            before = self._last[name]
            self.totals[name] += value - before if value >= before else value
        self._last = samples


class LiveCounts:
    """Pages of this run by result, and links of this run by the door's reason."""

    def __init__(self, ports: Ports) -> None:
        self.pages, self.links = MetricTotals(), MetricTotals()
        self._crawler, _ = mgmt_pool(f"http://{LOOPBACK}:{ports.crawler}", timeout=TIMEOUT_SECONDS)
        self._mgmt, _ = mgmt_pool(ports.mgmt_url, timeout=TIMEOUT_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._crawler.close()
        self._mgmt.close()

    @property
    def fetched(self) -> int:
        return sum(self.pages.totals[result] for result in FETCHED_RESULTS)

    @property
    def attempted(self) -> int:
        return self.pages.totals.total()

    async def read_pages(self) -> None:
        await read_metrics(self._crawler, self.pages)

    async def read_links(self) -> None:
        await read_metrics(self._mgmt, self.links)


async def read_metrics(pool: HttpPool, totals: MetricTotals) -> None:
    """Read the metrics of a process; while it restarts the last ones stay."""
    try:
        response = await pool.ask("GET", "/metrics", b"", {"Host": LOOPBACK})
    except UsherError:
        return
    totals.add(
        Counter(
            {
                name.decode(): round(float(value))
                for _, name, value in _SAMPLE.findall(response.body)
            }
        )
    )
