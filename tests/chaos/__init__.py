"""Fault injection: a whole cluster in network namespaces, faults by a seed, invariants checked from outside.

`python -m chaos --faults 200 --seed 7` starts PostgreSQL with a standby, two processes of each role with tokens, a web
site and constant load. It then kills, freezes, cuts off and fills up, and prints a table. `docs/chaos.md` describes it.
"""
