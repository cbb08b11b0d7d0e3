"""Decides which URLs may come in. So far the registry: which host has which number.

Comes in: host names. Goes out: domain64 numbers, given once and never changed. Central name: `hosts.register`.
"""
