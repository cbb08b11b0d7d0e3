"""Parses fetched bodies: HTML, PDF and plain text become links, metadata and text."""
