"""Usher runs a crawl from the front door to the search page."""

__version__ = "0.1.0"
