"""The metrics of a type of job in one manager."""

from collections.abc import Callable

from prometheus_client import Counter

from usher.queue.job_states import JobState
from usher.telemetry import JOB_RUNS, JOB_WAIT_SECONDS, RUN_SECONDS, RUNNING_JOBS


class JobTypeMetrics:
    """The metrics of one type, cached: looking them up for each run would cost more than changing them."""

    def __init__(self, type_: str, *, running: Callable[[], float]) -> None:
        RUNNING_JOBS.labels(type_).set_function(running)
        self.waited = JOB_WAIT_SECONDS.labels(type_)
        self.seconds = RUN_SECONDS.labels(type_)
        self._type = type_
        self._runs: dict[JobState, Counter] = {}
        self.runs(JobState.PERMANENT_ERROR)  # from 0, so that Prometheus sees the first failure

    def runs(self, state: JobState) -> Counter:
        """Return the counter of runs that ended in a state."""
        if state not in self._runs:
            self._runs[state] = JOB_RUNS.labels(self._type, state.value)
        return self._runs[state]
