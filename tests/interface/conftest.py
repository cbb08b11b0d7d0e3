"""A server and its database, shared by the tests of one file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.db.fixtures import Server, clone
from support.mgmt.mgmt_process import Mgmt, mgmt


@pytest.fixture(scope="module")
async def guestbook(migrated: Server) -> AsyncIterator[str]:
    """One database for all tests of a file: each knocks for hosts of its own."""
    async for made in clone(migrated, f" template {migrated.template} strategy file_copy"):
        yield made


@pytest.fixture(scope="module")
async def door(guestbook: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mgmt]:
    with mgmt(guestbook, tmp_path_factory.mktemp("mgmt") / "log", level="debug") as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Faces are tried on one server: the rooms behind them are on both, and every command is a process to start."""
    here = Path(__file__).parent
    again = [item for item in items if item.path.parent == here and "[debian" in item.name]
    config.hook.pytest_deselected(items=again)
    items[:] = [item for item in items if item not in set(again)]
