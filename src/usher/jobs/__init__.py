"""The client for producers: adds jobs from your own program and reads their results.

    import psycopg
    from usher import jobs

    with psycopg.connect(url) as conn:                      # your transaction
        conn.execute("insert into orders (id) values (7)")
        jobs.add(conn, jobs.JobSpec("mail", "shop.mail:confirm", ["7"]))

    with jobs.JobQueue(url) as queue:                       # its own connection
        job = queue.add("report", "shop.reports:monthly", "2026-11")
        print(queue.wait(job.id, timeout=60).result)

`add_async` and `AsyncJobQueue` are the same for asyncio. The address is that of the control database, with a login that
may call `control.add_jobs`, `control.job_status` and `control.cancel` (see docs/python.md). `usher.jobs.testing` has
helpers for tests.
"""

from usher.jobs.client import AsyncJobQueue, JobQueue, add, add_async
from usher.jobs.values import AddedJob, JobFailed, JobSpec, JobStatus

__all__ = (
    "AddedJob",
    "AsyncJobQueue",
    "JobFailed",
    "JobQueue",
    "JobSpec",
    "JobStatus",
    "add",
    "add_async",
)
