"""Fixtures for every test: a real PostgreSQL and a real web site."""

pytest_plugins = ["fix_database", "fix_site"]
