"""Polls feeds: when, how, and what follows."""
