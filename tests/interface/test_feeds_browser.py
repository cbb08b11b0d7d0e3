"""Pages of feeds and items in a real browser: search, dark mode, phone, without scripts."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.db.fixtures import Server, clone
from support.feeds.stored_feeds import fill
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.site.browser import CONTRAST, FOCUSED, NAMELESS, PROGRAM, SHADES, Browser, Tab
from support.site.browser_fixtures import Visit

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not here and could not be installed: scripts/packages"
)


class Stage:
    """MGMT with feeds, and where pictures go."""

    def __init__(self, server: Mgmt, feeds: dict[str, int], folder: Path) -> None:
        self.address, self.feeds = server.address, feeds
        self.pictures = Path(os.environ.get("PICTURES", folder))

    @property
    def paths(self) -> dict[str, str]:
        busy = self.feeds["busy"]
        return {
            "feeds": "/feeds",
            "feed": f"/feeds/{busy}",
            "failing": f"/feeds/{self.feeds['failing']}",
            "items": "/items",
            "item": f"/items/{self.feeds['item']}",
            "found": "/items?words=lamp&tag=sea",
            "nothing": "/items?words=zebra",
        }


@pytest.fixture(scope="module")
async def stage(migrated: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        feeds = await fill(dsn)
        with mgmt(dsn, folder / "log") as running:
            yield Stage(running, feeds, folder)


def test_from_feeds_to_an_item_by_keys_alone(stage: Stage, tab: Tab, visit: Visit) -> None:
    visit("/feeds")
    tab.picture(stage.pictures / "feeds.png")
    assert tab.text("h1") == ["Feeds"]
    assert tab.ask("document.querySelectorAll('.feeds tbody tr').length") == 5
    tab.key("Tab")
    assert tab.ask(FOCUSED) == "Skip to content"
    tab.ask("document.querySelector('.feeds tbody a').focus()")
    assert tab.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.after(lambda: tab.key("Enter"))
    assert tab.text("h1") == ["Keepers of the light"]
    tab.picture(stage.pictures / "feed.png")
    tab.ask("document.querySelector('.items a').focus()")
    tab.after(lambda: tab.key("Enter"))
    assert tab.text("h1") == ["The horn, recorded"]
    tab.picture(stage.pictures / "item.png")
    tab.key("/")
    assert tab.ask(FOCUSED) == "q"
    tab.write("harbour board")
    tab.after(lambda: tab.key("Enter"))
    tab.picture(stage.pictures / "items.png")


def test_hostile_feeds_are_shown_as_text(stage: Stage, tab: Tab, visit: Visit) -> None:
    hostile = stage.feeds["hostile"]
    visit(f"/items?feed={hostile}")
    paths = tab.ask("[...document.querySelectorAll('.items h3 a')].map(one => one.pathname)")
    assert len(paths) == 7
    for path in ("/feeds", f"/feeds/{hostile}", *paths):
        visit(path)
        assert tab.ask("document.querySelectorAll('main img, main script, iframe').length") == 0
        links = tab.ask("[...document.querySelectorAll('a')].map(one => one.protocol)")
        assert set(links) <= {"http:", "https:"}
    tab.picture(stage.pictures / "hostile.png")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_are_accessible(stage: Stage, tab: Tab, visit: Visit, *, dark: bool) -> None:
    tab.look(dark=dark)
    for name, path in stage.paths.items():
        visit(path)
        assert tab.ask(CONTRAST) >= 4.5, name
        assert tab.ask(NAMELESS) == 0, name
        assert tab.ask("document.querySelectorAll('h1').length") == 1
        assert (
            tab.ask("document.querySelectorAll('main, header, footer, [role=search]').length") == 4
        )
        drawn = "[...document.querySelectorAll('svg[role=img]')].every(one => one.getAttribute('aria-label'))"
        assert tab.ask(drawn)
        tab.picture(stage.pictures / f"{'dark' if dark else 'light'}-{name}.png")
    shade = tab.ask(SHADES)
    assert (sum(map(int, shade[4:-1].split(","))) < 200) == dark


def test_pages_fit_a_phone(stage: Stage, tab: Tab, visit: Visit) -> None:
    tab.look(width=375, height=760)
    for name, path in stage.paths.items():
        visit(path)
        assert tab.ask("document.documentElement.scrollWidth") <= 375, name
        tab.picture(stage.pictures / f"telephone-{name}.png")


def test_without_a_script(stage: Stage, chromium: Browser) -> None:
    tab = Tab(chromium, script=False)
    tab.look()
    for path in stage.paths.values():
        tab.open(f"{stage.address}{path}")
        told = tab.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
        found = tab.call("DOM.querySelector", nodeId=told, selector="main h1")["nodeId"]
        assert tab.call("DOM.getOuterHTML", nodeId=found)["outerHTML"].startswith("<h1")
    assert tab.complaints == []
    tab.close()
