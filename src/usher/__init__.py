"""Usher runs a crawl from the front door to the search page.

The public API: `usher.Client` calls MGMT, `usher.jobs` adds jobs, `usher.worker` is for the programs of jobs
(docs/python.md). Each is imported when it is first used, so that `import usher` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usher import jobs, worker
    from usher.http.client.mgmt_client import Client

__all__ = ("Client", "__version__", "jobs", "worker")
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a module
    if name == "Client":
        return import_module("usher.http.client.mgmt_client").Client
    if name in {"jobs", "worker"}:
        return import_module(f"usher.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
