"""The local stack: every role on one machine, for `usher up`, `usher crawl` and `usher demo`.

The roles share four processes (`roles.ROLE_PROCESSES`), which `supervisor.Supervisor` starts, restarts and stops.
`crawl` runs one crawl from its first page until all its pages are searchable.
"""
