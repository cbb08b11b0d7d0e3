"""A real browser for tests of pages; a file that uses `visit` has a `stage` with an address of its own."""

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from support.site.browser import Browser, Tab, browser

Visit = Callable[[str], None]


class Addressed(Protocol):
    address: str


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Tab]:
    """A page that must have nothing to complain of at the end."""
    one = Tab(chromium)
    one.look()
    yield one
    assert one.complaints == []
    one.close()


@pytest.fixture
def visit(stage: Addressed, tab: Tab) -> Visit:
    return lambda path: tab.open(f"{stage.address}{path}")
