"""Stores feeds and their items."""
