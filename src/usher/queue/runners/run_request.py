"""What a runner is told to do for a job."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from usher.queue.child_programs import permission
from usher.queue.job_env import environment
from usher.queue.jobs import Claimed
from usher.queue.policy import Policy
from usher.queue.runners.accounts import account_of
from usher.queue.runners.process_runner import Order

if TYPE_CHECKING:
    from usher.queue.manager import Post


def order(job: Claimed, policy: Policy, post: "Post") -> Order:
    """What the runner is to do."""
    forks = policy.forks(job.program)
    allowed = permission(post.policies, job.origin, job.type, job.program)
    account = account_of(policy.user)
    return Order(
        key=job.id,
        how="fork" if forks else "exec",
        program=job.program if forks else found(job.program, policy.directory),
        args=tuple(job.args),
        env={**post.env, **account.env, **environment(job, post.dsn_for(policy))},
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


def found(program: str, directory: str) -> str:
    """A bare name is looked for in the program directory, then where the system has its programs."""
    if "/" in program or (Path(directory) / program).exists():
        return program
    return shutil.which(program) or program
