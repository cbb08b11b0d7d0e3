"""The operating-system user that jobs of a type run as, if it is not the manager's own."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from stat import S_IXOTH

from psycopg.conninfo import conninfo_to_dict

from usher.errors import BadSetting
from usher.queue.policy import Policies


@dataclass(frozen=True, slots=True)
class JobAccount:
    """User and group id, None for the manager's own, and the variables that name the user."""

    ids: tuple[int, int] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@lru_cache(64)
def job_account(user: str) -> JobAccount:
    """Return the account of a user; BadSetting if there is none."""
    if not user:
        return JobAccount()
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise BadSetting(
            f"There is no user {user!r} on this machine.", hint="Correct `user` in usher.toml."
        ) from error
    env = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
    return JobAccount((entry.pw_uid, entry.pw_gid), env)


def check_users(policies: Policies) -> None:
    """Raise BadSetting if a type names a user that the manager cannot become."""
    tables = {"defaults": policies.defaults, **policies.named}
    for name, policy in tables.items():
        if job_account(policy.user).ids is not None and os.geteuid() != 0:
            raise BadSetting(
                f"user in [worker.{name}] is {policy.user!r}, and only root can run jobs as another user.",
                hint="Run the manager as root, or remove `user`.",
            )


@lru_cache(64)
def in_private_directory(dsn: str) -> bool:
    """Whether the server listens on a Unix socket in a directory that other users cannot enter."""
    host = str(conninfo_to_dict(dsn).get("host") or "") if dsn else ""
    if not host.startswith("/"):
        return False
    try:
        return not Path(host).stat().st_mode & S_IXOTH
    except OSError:
        return True
