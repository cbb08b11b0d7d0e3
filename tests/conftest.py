"""Fixtures for every test: a real PostgreSQL, a real web site, a real browser, and a desk for commands."""

from hypothesis import settings

pytest_plugins = ["fix_browser", "fix_database", "fix_desk", "fix_site"]
# How long one example takes says more about what else the machine does than about us.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes have a name in tests, not a picture: what is packed anew has other bytes in each process."""
    return argname if isinstance(val, bytes) else None
