"""Usher crawls sites and serves a search page.

The public Python API: `usher.Client` calls MGMT, `usher.jobs` adds jobs to the queue, and `usher.worker` is the API of
the programs that run as jobs. Each is imported on first use, so that `import usher` stays fast.
"""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ("Client", "__version__", "jobs", "worker")  # typed in __init__.pyi


def __getattr__(name: str) -> object:
    """Import a part of the public API on first use."""
    if name == "Client":
        return import_module("usher.http.client.mgmt_client").Client
    if name in {"jobs", "worker"}:
        return import_module(f"usher.{name}")
    raise AttributeError(f"module 'usher' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
