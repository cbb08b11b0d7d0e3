"""Jobs of Usher's own that keep the queue in order; run by a manager like any other."""

from usher import worker


def prune_log() -> None:
    """Forget jobs that ended longer ago than `usher jobs log --keep` says."""
    pruned = worker.job().prune_log()
    worker.job().message(f"OK {pruned} months of the log dropped")
