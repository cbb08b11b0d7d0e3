"""The queue: runs programs as one-off jobs and periodic tasks, on any number of machines.

Jobs are rows of `control.job` while they are live and of `control.job_log` afterwards. Start reading at `jobs.claim`
and `jobs.settle`, `job_states.job_outcome`, `periods.next_run` and `policy.Policy`.
"""
