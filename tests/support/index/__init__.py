"""Shared by tests of the index and the front-end."""
