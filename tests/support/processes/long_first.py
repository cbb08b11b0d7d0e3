"""Order tests so that each worker of xdist begins with long ones: none of these is left to run alone at the end."""

import pytest


@pytest.hookimpl(trylast=True)  # when other tests are deselected already
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each worker, which starts with a block of neighbours, its share of long tests at the head of its block."""
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if is_long(item)]
    short = [item for item in items if not is_long(item)]
    size = len(items) // workers
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        mine = long[worker::workers]
        room = max(size - len(mine), 0) if worker < workers - 1 else len(short)
        ordered += mine + short[:room]
        del short[:room]
    items[:] = ordered


def is_long(item: pytest.Item) -> bool:
    """Whether it is an end-to-end or a soak test; those on Debian's server stay together, else it restarts often."""
    if item.get_closest_marker("debian"):
        return False
    return "e2e" in item.path.parts or item.get_closest_marker("soak") is not None
