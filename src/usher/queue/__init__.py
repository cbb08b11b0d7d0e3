"""Runs programs: one-off jobs and periodic tasks, on any number of machines.

Comes in: jobs put in by anyone, and tasks whose time has come. Goes out: each run's state, message and output, in
`control.job` while it lives and in `control.job_log` for ever after. Central names: `jobs.claim` and `jobs.settle` (the
heart), `states.outcome` (what an ending means), `periods.next_run` (when a task runs next), `policy.Policy` (the
settings of one type of job).
"""
