"""The search page in a real browser: keyboard, dark mode, small screen, without scripts, accessibility."""

import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.index.rows import LoopThread, Rows, library, running_front_end
from support.site.browser import CONTRAST, FOCUSED, NAMELESS, PROGRAM, SHADES, Browser, Tab
from support.site.browser_fixtures import Visit

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not here and could not be installed: scripts/packages"
)


class Stage:
    """A front-end that a browser can reach, its rows, and where pictures go."""

    def __init__(self, folder: Path) -> None:
        self.backstage, self.stack = LoopThread(), AsyncExitStack()
        self.pictures = Path(os.environ.get("PICTURES", folder))
        self.address = self.backstage.run(self._open(folder))

    async def _open(self, folder: Path) -> str:
        self.rows = await self.stack.enter_async_context(Rows(folder))
        await self.rows.rows(1, 2, library())
        return await self.stack.enter_async_context(
            running_front_end(self.rows, folder, deadline=10.0)
        )

    def close(self) -> None:
        self.backstage.run(self.stack.aclose())
        self.backstage.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    one = Stage(tmp_path_factory.mktemp("stage"))
    try:
        yield one
    finally:
        one.close()


def submit(tab: Tab, text: str) -> None:
    tab.write(text)
    tab.after(lambda: tab.key("Enter"))


def test_search_and_paging_work_with_the_keyboard_alone(
    stage: Stage, tab: Tab, visit: Visit
) -> None:
    visit("/")
    assert tab.ask(FOCUSED) == "q"
    tab.picture(stage.pictures / "home.png")
    submit(tab, "velvet theatre")
    assert tab.text(".summary")[0].startswith("240 results")
    assert len(tab.text(".results li")) == 10
    assert set(tab.text(".snippet mark")) >= {"velvet", "theatre"}
    assert tab.ask("getComputedStyle(document.querySelector('mark')).fontWeight") == "600"
    assert tab.text(".hosts li")[0].startswith("docs.example.org")
    tab.picture(stage.pictures / "results.png")
    tab.key("Tab")
    assert tab.ask(FOCUSED) == "Skip to results"
    assert tab.ask("document.activeElement.getBoundingClientRect().top") >= 0
    tab.key("/")
    assert tab.ask(FOCUSED) == "q"
    tab.key("/")
    assert tab.ask("document.getElementById('q').value") == "/"
    tab.ask("document.querySelector('[rel=next]').focus()")
    assert tab.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.after(lambda: tab.key("Enter"))
    assert "page 2 of 24" in tab.text(".summary")[0]
    assert tab.text("[aria-current=page]") == ["Page\n2"] or tab.text(".here")[0].endswith("2")
    assert tab.ask("document.querySelector('.results').start") == 11
    tab.ask("scrollTo(0, document.body.scrollHeight)")
    tab.picture(stage.pictures / "paging.png")


def test_no_results_and_a_suggestion(stage: Stage, tab: Tab, visit: Visit) -> None:
    visit("/search?q=velvat+seats")
    assert tab.text(".meant")[0].startswith("Showing results for velvet seats")
    assert tab.text(".summary")[0].startswith("240 results")
    tab.picture(stage.pictures / "corrected.png")
    tab.ask("document.querySelector('.meant a').focus()")
    tab.after(lambda: tab.key("Enter"))
    assert tab.text(".summary")[0].startswith("No page has all important words")
    assert tab.text(".meant") == ["Did you mean velvet seats?"]
    assert tab.text(".weaker") == ["These pages have some of the words:"]
    tab.picture(stage.pictures / "spelling.png")
    tab.ask("document.querySelector('.meant a').focus()")
    tab.after(lambda: tab.key("Enter"))
    assert tab.text(".summary")[0].startswith("240 results")
    visit("/search?q=report+year+theatre")
    tab.picture(stage.pictures / "weak.png")
    visit("/search?q=https%3A%2F%2Fnowhere.example%2Fpage")
    assert tab.text("pre") == []
    tab.picture(stage.pictures / "nothing.png")


def test_hostile_pages_are_shown_as_text(stage: Stage, tab: Tab, visit: Visit) -> None:
    visit("/search?q=hostile")
    assert tab.text(".summary")[0].startswith("4 results")
    assert tab.ask("document.querySelectorAll('main img, main script').length") == 0
    links = tab.ask("[...document.querySelectorAll('.results a')].map(one => one.protocol)")
    assert set(links) == {"https:"}
    tab.picture(stage.pictures / "hostile.png")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_is_accessible(stage: Stage, tab: Tab, visit: Visit, *, dark: bool) -> None:
    tab.look(dark=dark)
    for path in ("/", "/search?q=velvet+lang:en+%22&page=3", "/search?q=nothing+here"):
        visit(path)
        tab.ask("document.querySelector('details').open = true")
        assert tab.ask(CONTRAST) >= 4.5
        assert tab.ask(NAMELESS) == 0
        assert tab.ask("document.documentElement.lang") == "en"
        assert (
            tab.ask("document.querySelectorAll('main, header, footer, [role=search]').length") == 4
        )
        assert tab.ask("document.querySelectorAll('h1').length") == 1
    shade = tab.ask(SHADES)
    assert (sum(map(int, shade[4:-1].split(","))) < 200) == dark
    visit("/search?q=velvet+lang:en+%22&page=3")
    tab.picture(stage.pictures / f"{'dark' if dark else 'light'}.png")


def test_on_a_telephone(stage: Stage, tab: Tab, visit: Visit) -> None:
    tab.look(width=375, height=760)
    for path in ("/", "/search?q=velvet&page=7", "/search?q=title:far", "/search?q=" + "x" * 900):
        visit(path)
        assert tab.ask("document.documentElement.scrollWidth") <= 375
    visit("/search?q=velvet&page=7")
    tab.picture(stage.pictures / "telephone.png")


def test_without_a_script(stage: Stage, chromium: Browser) -> None:
    tab = Tab(chromium, script=False)
    tab.look()
    tab.open(f"{stage.address}/")
    # By hand, for which tab has the keyboard is the browser's own affair.
    page = tab.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
    field = tab.call("DOM.querySelector", nodeId=page, selector="input[name=q]")["nodeId"]
    tab.call("Page.bringToFront")
    tab.call("DOM.focus", nodeId=field)
    submit(tab, "report year")
    told = tab.call("DOM.getDocument", depth=-1)
    found = tab.call("DOM.querySelector", nodeId=told["root"]["nodeId"], selector=".results li")
    html = tab.call("DOM.getOuterHTML", nodeId=found["nodeId"])["outerHTML"]
    assert "9 March 2024" in html
    assert "<mark>report</mark>" in html
    assert tab.complaints == []
    tab.close()


def test_the_accessibility_check_detects_problems(stage: Stage, chromium: Browser) -> None:
    tab = Tab(chromium)
    tab.open(f"{stage.address}/")
    assert tab.complaints == []
    tab.ask("document.body.setAttribute('style', 'color: red')")
    tab.ask("document.body.append(Object.assign(document.createElement('img'), {src: 'data:,'}))")
    tab.ask("console.error('so it is')")
    told = str(tab.complaints)
    assert told.count("Content Security Policy") >= 2
    assert "so it is" in told
    tab.close()


def test_partial_results_show_a_notice(stage: Stage, tab: Tab, visit: Visit) -> None:
    server = stage.rows.servers[0]
    server.refused.update(("/search", "/snippets", "/stats"))
    try:
        visit("/search?q=velvet")
    finally:
        server.refused.clear()
    assert tab.text("[role=status]")[0].startswith("Part of the index did not answer")
    assert tab.text(".summary")[0].startswith("At least")
    assert tab.ask(CONTRAST) >= 4.5
    tab.picture(stage.pictures / "partial.png")
