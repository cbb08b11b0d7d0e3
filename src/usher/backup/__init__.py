"""Backups: a directory with the database, the roles, the settings and the chunk files of this machine.

A backup is complete when it has the file SHA256SUMS, which lists all other files.
"""
