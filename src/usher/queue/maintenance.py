"""Maintenance of the queue that runs as a job, like any other."""

from usher import worker


def prune_log() -> None:
    """Drop the log of jobs that ended longer ago than `usher jobs log --keep` says."""
    months = worker.job().prune_log()
    worker.job().message(f"OK {months} months of the log dropped")
