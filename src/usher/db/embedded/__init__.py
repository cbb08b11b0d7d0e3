"""A PostgreSQL of Usher's own, for machines that have none.

Comes in: a data directory. Goes out: a DSN. `lodge()` makes this process a guest of the server in that directory
and starts the server if it is the first; a small keeper process restarts it when it dies and stops it when the
last guest has gone, however that guest went. Central names: `guest.lodge`, `cluster.Cluster`, `keeper.keep`,
`binaries.Binaries`, `account.Account`. Knows nothing of Usher's tables and needs no driver.
"""
