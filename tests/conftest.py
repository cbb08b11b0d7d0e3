"""Fixtures for every test: a real PostgreSQL, a real web site, a real browser, and a desk for commands."""

import os
from tempfile import TemporaryDirectory

from hypothesis import settings

BYTECODE = None
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Hundreds of processes start: let them compile once, if not beside the sources. Workers have it from us.
    BYTECODE = TemporaryDirectory(prefix="usher-bytecode-")
    os.environ["PYTHONPYCACHEPREFIX"] = BYTECODE.name
pytest_plugins = ["fix_browser", "fix_database", "fix_desk", "fix_site"]
# How long one example takes says more about what else the machine does than about us.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes have a name in tests, not a picture: what is packed anew has other bytes in each process."""
    return argname if isinstance(val, bytes) else None
