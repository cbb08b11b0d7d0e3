"""The request to run a job, from the job, its policy and the manager's configuration."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from usher.queue.child_programs import permission
from usher.queue.job_env import job_environment
from usher.queue.jobs import ClaimedJob
from usher.queue.policy import Policy
from usher.queue.runners.accounts import job_account
from usher.queue.runners.process_runner import RunRequest

if TYPE_CHECKING:
    from usher.queue.manager import ManagerConfig


def run_request(job: ClaimedJob, policy: Policy, config: "ManagerConfig") -> RunRequest:
    """Return the request for a runner."""
    forks = policy.forks(job.program)
    allowed = permission(config.policies, job.origin, job.type, job.program)
    account = job_account(policy.user)
    return RunRequest(
        key=job.id,
        how="fork" if forks else "exec",
        program=job.program if forks else program_path(job.program, policy.directory),
        args=tuple(job.args),
        env={**config.env, **account.env, **job_environment(job, config.dsn_for(policy))},
        refusal=allowed.refusal,
        defined_only=allowed.defined_only,
        account=account.ids,
        directory=policy.directory,
        kill_after=policy.kill_after.total_seconds(),
        grace=policy.grace.total_seconds(),
        memory=policy.memory,
        cpu=policy.cpu,
        output=policy.output,
    )


def program_path(program: str, directory: str) -> str:
    """Look a bare name up in the program directory, then in PATH."""
    if "/" in program or (Path(directory) / program).exists():
        return program
    return shutil.which(program) or program
