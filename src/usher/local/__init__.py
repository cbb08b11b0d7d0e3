"""The stage: every role on one machine, started, watched and ended together.

Comes from `usher up`, `usher crawl` and `usher demo`; goes to a few processes, each with some of the roles in one event
loop, and to the embedded PostgreSQL. Central names: `parts.PARTS`, which roles share a process; `troupe.Troupe`, the
processes; `crawl.crawl`, one crawl from its first page to the search page.
"""
