"""Writes the pictures of docs/console.md into docs/images: pages of the console on a small generated installation.

`make pictures` runs it. It needs Debian's chromium, and `tests` in PYTHONPATH.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from support.mgmt.mgmt_process import mgmt
from support.processes.commands import usher
from support.site.browser import PROGRAM, Tab, browser
from usher.db.areas import Area, AreaDatabases
from usher.db.embedded.server_lease import lease_server
from usher.db.statements import split_statements
from usher.mgmt.watchdog import WATCHDOG_LOCK
from usher.queue.scheduler import LEADER_LOCK
from usher.schema import migrate

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
STACK = dict(split_statements(Path(__file__).with_suffix(".sql").read_text()))["stack"]
HOST = "www.lighthouse.com"
FILTER = '[{"name": "calendar", "rule": "path", "matches": "^/calendar/"}]'
# Pictures, with the page of each and the height of the window.
PAGES = {
    "console-overview": ("/", 1000),
    "console-explain": (f"/explain?url=https://{HOST}/history/7", 760),
    "console-crawls": ("/crawls", 700),
    "console-job": ("/jobs/1", 1000),
    "console-charts": ("/charts", 1450),
}
PREVIEW = f"""document.getElementById('f-filters').value = {FILTER!r};
document.querySelector('.act .quiet-button').click()"""
WIDTH = 1100


@contextmanager
def filled(dsn: str) -> Iterator[None]:
    """Fill the database, and hold the locks of a watchdog and a scheduler, which the status looks for."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(STACK.encode())
        conn.execute("analyze")
        for lock in (WATCHDOG_LOCK, LEADER_LOCK):
            conn.execute("select pg_advisory_lock(%s)", (lock,))
        yield


def take_pictures(tab: Tab, address: str) -> None:
    """Open each page and store its picture; the last one is the preview of a filter."""
    for name, (path, height) in PAGES.items():
        tab.look(width=WIDTH, height=height)
        tab.open(f"{address}{path}")
        tab.picture(IMAGES / f"{name}.png")
    tab.look(width=WIDTH, height=760)
    tab.open(f"{address}/actions/host-filters?host={HOST}")
    tab.after(lambda: tab.ask(PREVIEW))
    tab.picture(IMAGES / "console-preview.png")
    tab.look(dark=True, width=390, height=760)
    tab.open(f"{address}/explain?url=https://{HOST}/history/7")
    tab.picture(IMAGES / "console-phone.png")


def main() -> None:
    if PROGRAM is None:
        raise SystemExit("chromium is not here: scripts/packages installs it.")
    home = Path(tempfile.mkdtemp(prefix="usher-pictures-"))
    home.chmod(0o755)  # the account of the embedded PostgreSQL must reach it
    try:
        with ExitStack() as ends:
            lease = ends.enter_context(lease_server(home / "data"))
            asyncio.run(migrate.ensure(AreaDatabases(dict.fromkeys(Area, lease.dsn), lease)))
            ends.enter_context(filled(lease.dsn))
            server = ends.enter_context(mgmt(lease.dsn, home / "log"))
            environment = {"DATABASE_URL": lease.dsn, "USHER_DATA": str(server.data)}
            link = usher("console", "--mgmt", server.address, environment=environment)
            tab = Tab(ends.enter_context(browser(home / "profile")))
            tab.open(link.out.strip())
            tab.after(lambda: tab.ask("document.querySelector('main button').click()"))
            take_pictures(tab, server.address)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
