"""Shared by index servers and front-ends: query language, tokens, highlighting and the messages between them."""
