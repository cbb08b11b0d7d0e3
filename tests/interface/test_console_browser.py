"""The console in a real browser: sign-in, keyboard, dark mode, phone, without scripts, without complaints."""

import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.console.filled_stack import HOST, PAGE, at, fill, rows, run
from support.db.fixtures import Server, clone
from support.mgmt.mgmt_process import Mgmt, mgmt
from support.processes.commands import usher
from support.site.axe import read_axe, violations
from support.site.browser import CONTRAST, FOCUSED, NAMELESS, PROGRAM, SHADES, Browser, Tab
from support.site.browser_fixtures import Visit

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not here and could not be installed: scripts/packages"
)
FIRST_BUTTON = "document.querySelector('main button').click()"
PAGES = {
    "overview": "/",
    "charts": "/charts",
    "explain": f"/explain?url={PAGE}",
    "pages": "/pages",
    "errors": "/pages/errors",
    "refused": "/pages/refused",
    "crawls": "/crawls",
    "hosts": "/hosts",
    "host": f"/hosts/{HOST}",
    "jobs": "/jobs",
    "job": "/jobs/1",
    "types": "/types",
    "tasks": "/tasks",
    "components": "/components",
    "chunks": "/chunks",
    "chunk": "/chunks/1",
    "removals": "/removals",
    "events": "/events",
    "tokens": "/tokens",
    "searches": "/searches",
    "feeds": "/feeds",
    "log": "/log",
    "settings": "/settings",
    "removal of all that match": f"/actions/pages-remove?host={HOST}",
    "cancelling all that match": "/actions/jobs-cancel?state=pending",
    "task": "/actions/task-edit?task=1",
    "action": f"/actions/host-pause?host={HOST}",
    "not found": "/jobs/999",
}


class Stage:
    """MGMT with one of each thing, and where pictures go."""

    def __init__(self, server: Mgmt, database: str, folder: Path) -> None:
        self.server, self.address, self.database = server, server.address, database
        self.pictures = Path(os.environ.get("PICTURES", folder))

    def link(self) -> str:
        """A link of `usher console`."""
        environment = {"DATABASE_URL": self.database, "USHER_DATA": str(self.server.data)}
        ran = usher("console", "--mgmt", self.address, environment=environment)
        assert ran.code == 0, ran.err
        return ran.out.strip()


@pytest.fixture(scope="module")
async def stage(migrated: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        with mgmt(dsn, folder / "log") as running:
            fill(dsn, running)
            run(
                dsn,
                "insert into work.history (period, metric, at, number) "
                "select 'minute', m.metric, date_trunc('minute', now()) - n * interval '1 minute', "
                "m.height * (1 + sin(n / 6.0)) from generate_series(1, 50) n, (values "
                "('pages_indexed', 40), ('pages_failed', 9), ('pages_other', 20), ('pages_waiting', 900), "
                "('seconds_to_search_p50', 8), ('seconds_to_search_p95', 20), ('queries', 30), "
                "('query_seconds_p95', 0.05)) m (metric, height) where n not between 20 and 25",
                "update work.guestbook set state = 'error', status = 500, failures = 3, "
                "reason = 'HTTP 500', next_fetch = now() + interval '2 hours' where path = '/page'",
            )
            yield Stage(running, dsn, folder)


@pytest.fixture(scope="module")
def signed(stage: Stage, chromium: Browser) -> Stage:
    """The stage, after the browser signed in with a link."""
    tab = Tab(chromium)
    tab.open(stage.link())
    tab.after(lambda: tab.ask(FIRST_BUTTON))
    assert tab.text("h1") == ["Overview"]
    tab.close()
    return stage


def test_the_sign_in_returns_to_the_page(stage: Stage, tab: Tab, visit: Visit) -> None:
    visit("/login")
    tab.picture(stage.pictures / "console-login.png")
    assert tab.text("h1") == ["Usher console"]
    assert tab.ask(CONTRAST) >= 4.5
    assert tab.ask(NAMELESS) == 0


def test_from_the_overview_to_an_action_by_keys_alone(
    signed: Stage, tab: Tab, visit: Visit
) -> None:
    assert signed.address
    visit("/")
    tab.key("Tab")
    assert tab.ask(FOCUSED) == "Skip to content"
    tab.key("/")
    assert tab.ask(FOCUSED) == "q"
    tab.write(PAGE)
    tab.after(lambda: tab.key("Enter"))
    assert tab.text("h1") == ["Explanation"]
    assert tab.text(".path .stopped strong") == ["Fetch"]
    assert "HTTP 500" in tab.text(".verdict")[0]
    tab.ask("document.querySelector('.remedy a').focus()")
    tab.after(lambda: tab.key("Enter"))
    assert tab.text("h1") == ["Crawl now"]
    tab.ask("document.querySelector('main button').focus()")
    tab.after(lambda: tab.key("Enter"))
    assert "✓" in tab.text(".well")[0]
    assert tab.text("dd code") == [f"usher add --pass {PAGE}"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_are_accessible(signed: Stage, tab: Tab, visit: Visit, *, dark: bool) -> None:
    tab.look(dark=dark)
    for name, path in PAGES.items():
        visit(path)
        assert tab.ask(CONTRAST) >= 4.5, name
        assert tab.ask(NAMELESS) == 0, name
        assert tab.ask("document.querySelectorAll('h1').length") == 1, name
        assert (
            tab.ask("document.querySelectorAll('main, header, footer, [role=search]').length") == 4
        )
        headings = (
            "[...document.querySelectorAll('table')].every(each => each.caption && each.tHead)"
        )
        assert tab.ask(headings), name
        tab.picture(signed.pictures / f"console-{'dark' if dark else 'light'}-{name}.png")
        forget_expected(tab, name)
    assert requests_elsewhere(tab, signed.address) == []
    shade = tab.ask(SHADES)
    assert (sum(map(int, shade[4:-1].split(","))) < 200) == dark


def requests_elsewhere(tab: Tab, address: str) -> list[str]:
    """The addresses of other servers that the pages asked."""
    sent = [event for event in tab.browser.events if event["method"] == "Network.requestWillBeSent"]
    urls = [str(event["params"]["request"]["url"]) for event in sent]
    assert urls  # they are recorded
    return [url for url in urls if not url.startswith((f"{address}/", "data:"))]


def forget_expected(tab: Tab, name: str) -> None:
    """A page for an error has that status, which the browser notes in its log."""
    if name == "not found":
        tab.browser.events[:] = [
            event for event in tab.browser.events if "404" not in re.sub(r"\s", "", str(event))
        ]


def test_pages_fit_a_phone(signed: Stage, tab: Tab, visit: Visit) -> None:
    tab.look(width=375, height=760)
    for name, path in PAGES.items():
        visit(path)
        assert tab.ask("document.documentElement.scrollWidth") <= 375, name
        tab.picture(signed.pictures / f"console-phone-{name}.png")
        forget_expected(tab, name)


@pytest.mark.soak
@pytest.mark.parametrize(
    "look",
    [{"dark": False}, {"dark": True}, {"width": 375, "height": 760}],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_no_violation(
    signed: Stage, tab: Tab, visit: Visit, look: dict[str, Any]
) -> None:
    assert signed.address
    axe = read_axe()
    tab.look(**look)
    for name, path in {**PAGES, "login": "/login"}.items():
        visit(path)
        assert violations(tab, axe) == [], name
        forget_expected(tab, name)


def test_axe_finds_a_button_without_a_name(signed: Stage, tab: Tab, visit: Visit) -> None:
    """The check itself works."""
    assert signed.address
    axe = read_axe()
    visit("/settings")
    tab.ask("document.querySelector('main').append(document.createElement('button')) || 0")
    assert [text.partition(":")[0] for text in violations(tab, axe)] == ["button-name"]


# The elements that the Tab key should reach, and a number for each.
REACHABLE = """(() => {
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, [tabindex='0']")];
  const shown = all.filter(each => each.type !== "hidden" && each.checkVisibility());
  shown.forEach((each, number) => { each.dataset.number = number; });
  return shown.length;
})()"""
FOCUS = """(() => {
  const node = document.activeElement, style = getComputedStyle(node);
  return [node.dataset.number || "", style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
})()"""


def test_the_tab_key_reaches_everything(signed: Stage, tab: Tab, visit: Visit) -> None:
    """Every link, button and field of every page, and each shows that it has the focus."""
    assert signed.address
    for name, path in PAGES.items():
        visit(path)
        number, reached = tab.ask(REACHABLE), set()
        for _ in range(number + 2):
            tab.key("Tab")
            which, is_visible = tab.ask(FOCUS)
            assert is_visible or not which, (name, which)
            reached.add(which)
        missing = [each for each in map(str, range(number)) if each not in reached]
        assert missing == [], (
            name,
            [
                tab.ask(f"document.querySelector('[data-number=\"{each}\"]').outerHTML")
                for each in missing
            ],
        )
        forget_expected(tab, name)


def shows(tab: Tab, expression: str, seconds: float = 30) -> None:
    """Wait until the expression is true in the page."""
    deadline = time.monotonic() + seconds
    while not tab.ask(expression):
        assert time.monotonic() < deadline, (expression, tab.text("main"))
        time.sleep(0.1)


def test_the_output_of_a_job_appears_while_it_runs(signed: Stage, tab: Tab, visit: Visit) -> None:
    """The page is not loaded again: what the operator did with it stays."""
    at(signed.database, "jobs", "add", "--type", "slow", "--", "true")
    [(job,)] = rows(signed.database, "select max(id) from control.job")
    visit(f"/jobs/{job}")
    tab.ask("window.isSame = true")
    assert tab.text("[data-live=Output]") == ["No output yet."]
    run(signed.database, f"update control.job set output = 'line one\nline two' where id = {job}")
    shows(tab, "document.querySelector('.output')?.innerText === 'line one\\nline two'")
    at(signed.database, "jobs", "cancel", str(job))
    shows(tab, "document.querySelector('.fields dd').innerText.includes('cancelled')")
    shows(tab, "document.getElementById('live').hidden")
    assert tab.ask("window.isSame")


def test_updates_can_be_paused_and_keep_the_focus(signed: Stage, tab: Tab, visit: Visit) -> None:
    visit("/jobs")
    tab.ask("window.isSame = true")
    press = "document.getElementById('live').click()"
    assert tab.text("#live") == ["Pause updates"]
    tab.ask("document.querySelector('td a[href^=\"/jobs/\"]').focus()")
    focused = tab.ask("document.activeElement.getAttribute('href')")
    tab.ask("document.getElementById('f-type').value = 'typed'")
    tab.ask(press)
    assert tab.text("#live") == ["Resume updates"]
    at(signed.database, "jobs", "add", "--type", "brandnew", "--", "true")
    tab.ask(press.replace("click()", "dispatchEvent(new Event('x'))"))
    assert "brandnew" not in tab.text("main")[0]
    tab.ask(press)
    shows(tab, "document.querySelector('main').innerText.includes('brandnew')")
    assert tab.ask("window.isSame")
    assert tab.ask("document.activeElement.getAttribute('href')") == focused
    assert tab.ask("document.getElementById('f-type').value") == "typed"
    tab.ask(press)
    visit("/components")
    assert tab.text("#live") == ["Resume updates"]  # for all pages of the tab
    tab.ask(press)


def test_updates_end_with_the_session(stage: Stage, chromium: Browser) -> None:
    """The page leads to the sign-in, and does not show old figures for ever."""
    tab = Tab(chromium)
    tab.open(stage.link())
    tab.after(lambda: tab.ask(FIRST_BUTTON))
    tab.open(f"{stage.address}/jobs")
    [(kept,)] = rows(
        stage.database,
        "with gone as (delete from work.console_session where hash = (select hash from work.console_session "
        "where kind = 'session' order by created_at desc limit 1) returning hash) select count(*) from gone",
    )
    assert kept == 1
    tab.after(
        lambda: tab.ask(
            "document.getElementById('live').click() || document.getElementById('live').click()"
        )
    )
    assert tab.text("h1") == ["Usher console"]
    tab.open(stage.link())  # the tests share the browser
    tab.after(lambda: tab.ask(FIRST_BUTTON))
    tab.close()


def test_everything_but_updates_works_without_scripts(stage: Stage, chromium: Browser) -> None:
    """Sign in, find, filter, the next rows, preview and action, by links and forms alone."""
    tab = Tab(chromium, script=False)
    tab.open(stage.link())
    tab.after(lambda: tab.ask(FIRST_BUTTON))
    assert tab.text("h1") == ["Overview"]
    assert tab.ask("!document.getElementById('live').checkVisibility()")  # it would do nothing
    tab.ask(f"document.getElementById('q').value = '{HOST}'")
    tab.after(lambda: tab.ask("document.querySelector('[role=search] button').click()"))
    assert tab.text("h1") == [HOST]
    tab.open(f"{stage.address}/pages")
    tab.ask(f"document.getElementById('f-host').value = '{HOST}'")
    tab.after(lambda: tab.ask("document.querySelector('.narrow button').click()"))
    assert tab.ask("location.search").startswith(f"?host={HOST}")
    assert any(PAGE in row for row in tab.text("tbody tr"))
    tab.open(f"{stage.address}/actions/host-filters?host={HOST}")
    tab.after(lambda: tab.ask("document.querySelector('.act .quiet-button').click()"))
    assert "known pages" in tab.text(".notice")[0]
    tab.open(f"{stage.address}/actions/host-cadence?host={HOST}&cadence=weekly")
    tab.after(lambda: tab.ask(FIRST_BUTTON))
    assert tab.text("dt + dd")[1] == "weekly"
    for name, path in PAGES.items():
        tab.open(f"{stage.address}{path}")
        assert tab.text("h1")[0], name
        assert len(tab.text("main")[0]) > 20, name
        forget_expected(tab, name)
    assert tab.complaints == []
    tab.close()
