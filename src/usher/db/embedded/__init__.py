"""The embedded PostgreSQL server, for machines that have none.

`lease_server` returns a lease with a DSN; the first lease starts the server. A supervisor process restarts the server
when it dies, and stops it when the last process that holds a lease has ended, however it ended. This package knows
nothing of Usher's tables and needs no database driver.
"""
