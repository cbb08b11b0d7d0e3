"""Which programs a job may start as child jobs, by the usher.toml of the manager that runs them."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from usher.queue.policy import FUNCTION_NAME, Policies

ANY_PROGRAM: Final = "*"
RELATIVE_SEGMENTS: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that added a job."""

    type: str
    program: str


@dataclass(frozen=True, slots=True)
class ProgramPermission:
    """Whether a program may run as a child job; `refusal` is empty if it may."""

    refusal: str = ""
    # Only functions that the module defines may run, not what it imported (`os.system`).
    defined_only: bool = False


def permission(
    policies: Policies, origin: Origin | None, type_: str, program: str
) -> ProgramPermission:
    """Return whether a job may run. A job without an origin, of an operator or a task, may run anything."""
    if origin is None:
        return ProgramPermission()
    parent = policies.of(origin.type)
    if policies.of(type_).user != parent.user:
        return ProgramPermission(
            f"A job of type {origin.type} may not start one of type {type_}: "
            f"their `user` settings differ. Set the same user in both tables of usher.toml"
        )
    listed = parent.child_programs or ()
    if policies.of(type_).in_manager and not parent.in_manager and program not in listed:
        return ProgramPermission(
            f"A job of type {origin.type} may not start one of type {type_}, which runs inside the manager. "
            f"Add {program[:200]!r}, without wildcards, to child_programs in [worker.{origin.type}]"
        )
    patterns = default_patterns(origin) if parent.child_programs is None else parent.child_programs
    if program in patterns or ANY_PROGRAM in patterns:
        return ProgramPermission()
    if any(matches(program, pattern) for pattern in patterns):
        return ProgramPermission(defined_only=FUNCTION_NAME.fullmatch(program) is not None)
    return ProgramPermission(
        f"A job of type {origin.type} may not start the program {program[:200]!r}. "
        f"Add it to child_programs in [worker.{origin.type}] of the manager's usher.toml"
    )


def default_patterns(origin: Origin) -> tuple[str, ...]:
    """Allow the parent's own program and, if that is a function, the functions of its module."""
    if FUNCTION_NAME.fullmatch(origin.program):
        return origin.program, f"{origin.program.partition(':')[0]}:*"
    return (origin.program,)


def matches(program: str, pattern: str) -> bool:
    """Compare segment by segment: a wildcard matches no slash, and a path with `..` never matches."""
    parts, patterns = program.split("/"), pattern.split("/")
    if len(parts) != len(patterns) or any(part in RELATIVE_SEGMENTS for part in parts[1:]):
        return False
    return all(map(fnmatchcase, parts, patterns))


def known_refusal(policies: Policies, origin: Origin, type_: str, program: str) -> str:
    """Return why a child cannot run, by this usher.toml; the manager that runs it may have another one."""
    if origin.type not in policies.named and policies.defaults.child_programs is None:
        return ""
    return permission(policies, origin, type_, program).refusal
