"""How jobs of one type run, time out and retry: `[worker.<type>]` over `[worker.defaults]` over defaults."""

# ruff: noqa: RUF009 - option() is a dataclass field
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from usher import durations
from usher.errors import BadSetting
from usher.settings import to_bool, to_float, to_int, to_text, unknown_setting

RunMode = Literal["auto", "exec", "fork", "async"]

DEFAULTS: Final = "defaults"
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
MAX_DURATION: Final = timedelta(days=3650)
K, M, G, T = (1 << power for power in (10, 20, 30, 40))

JOB_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MODULE_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
FUNCTION_NAME: Final = re.compile(f"{MODULE_NAME.pattern}:{MODULE_NAME.pattern}")
SIZE_TEXT: Final = re.compile("([0-9]{1,15})([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)


def to_duration(value: object) -> timedelta:
    """Parse a duration; a plain number is seconds."""
    duration = durations.parse(value.strip()) if isinstance(value, str) else None
    try:
        return timedelta(seconds=to_float(value)) if duration is None else duration
    except (ValueError, OverflowError) as error:
        raise ValueError("a time such as 90s, 15m, 1h30m or 2d is wanted") from error


def to_size(value: object) -> int:
    match = SIZE_TEXT.fullmatch(str(value))
    if match is None:
        raise ValueError("a size such as 64K, 512M or 2G is wanted")
    number, unit = match.groups()
    return int(number) * {"": 1, "K": K, "M": M, "G": G, "T": T}[unit.upper()]


def to_memory(value: object) -> int | None:
    """Parse a size; 0 means no limit, so that a type can override the defaults."""
    return to_size(value) or None


def to_cpu(value: object) -> int | None:
    """Parse a duration and round it up to whole seconds; 0 means no limit."""
    return -(-to_duration(value) // SECOND) or None


def to_run_mode(value: object) -> str:
    if value not in get_args(RunMode):
        raise ValueError(f"one of {', '.join(get_args(RunMode))} is wanted")
    return str(value)


def to_modules(value: object) -> tuple[str, ...]:
    names = to_texts(value, "modules")
    for name in names:
        if not MODULE_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} is not the name of a module")
    return names


def to_patterns(value: object) -> tuple[str, ...]:
    return to_texts(value, "programs or patterns")


def to_texts(value: object, what: str) -> tuple[str, ...]:
    """Check a list of texts that are not empty."""
    if not isinstance(value, list):
        raise TypeError(f"a list of {what} is wanted")
    for text in value:
        if not isinstance(text, str) or not text:
            raise ValueError(f"{text!r:.80} cannot be in a list of {what}")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting is read, and its bounds."""

    read: Callable[[Any], Any]
    minimum: float | timedelta | None = None
    maximum: float | timedelta | None = None


def option(
    default: object,
    read: Callable[[Any], Any],
    minimum: float | timedelta | None = None,
    maximum: float | timedelta | None = None,
) -> Any:  # noqa: ANN401 - the type of the field
    """A field of a policy, how it is read, and its bounds."""
    return field(default=default, metadata={"option": Option(read, minimum, maximum)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of one type of job."""

    # At once in one manager; 0: the manager runs none of the type.
    max_processes: int = option(5, to_int, 0, 10_000)
    poll_interval: timedelta = option(5 * SECOND, to_duration, SECOND / 10, DAY)
    kill_after: timedelta = option(15 * 60 * SECOND, to_duration, SECOND / 10, MAX_DURATION)
    grace: timedelta = option(10 * SECOND, to_duration, 0 * SECOND, DAY)  # from TERM to KILL
    reschedule_after: timedelta = option(3600 * SECOND, to_duration, 0 * SECOND, MAX_DURATION)
    auto_reschedule: bool = option(True, to_bool)  # noqa: FBT003 - the default
    # Runs in all, the first included; a smallint counts them.
    max_attempts: int = option(4, to_int, 1, 32_767)
    retry_after_kill: bool = option(False, to_bool)  # noqa: FBT003 - the default
    backoff: float = option(2.0, to_float, 1, 100)
    most_wait: timedelta = option(DAY, to_duration, 0 * SECOND, MAX_DURATION)
    # The share of a retry delay that varies, so that retries spread.
    jitter: float = option(0.1, to_float, 0, 1)
    memory: int | None = option(None, to_memory, M, 1024 * T)  # bytes
    cpu: int | None = option(None, to_cpu, 1, MAX_DURATION // SECOND)  # seconds
    output: int = option(64 * K, to_size, 0, 256 * M)  # bytes of a run's output that are stored
    directory: str = option("", to_text)
    run: RunMode = option("auto", to_run_mode)
    preload: tuple[str, ...] = option((), to_modules)
    # Patterns of the programs that its jobs may start as child jobs; None: see `child_programs.default_patterns`.
    child_programs: tuple[str, ...] | None = option(None, to_patterns)
    user: str = option("", to_text)  # of the operating system; empty: the manager's own

    def forks(self, program: str) -> bool:
        """Whether the program is a Python function to call in a fork; `auto` decides by its name."""
        if self.run == "auto":
            return FUNCTION_NAME.fullmatch(program) is not None
        return self.run in {"fork", "async"}  # `usher jobs rerun` forks also for `async`

    @property
    def in_manager(self) -> bool:
        """Whether its jobs run inside the manager's process."""
        return self.run == "async"


OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {field.name: field.metadata["option"] for field in fields(Policy)}
)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of every type; types without a table have the defaults."""

    defaults: Policy
    named: Mapping[str, Policy]

    def of(self, type_: str) -> Policy:
        return self.named.get(type_, self.defaults)


def read_policies(tables: Mapping[str, Mapping[str, Any]]) -> Policies:
    """Read all worker tables; BadSetting for an invalid one."""
    read = {name: table_options(name, table) for name, table in tables.items()}
    defaults = read.pop(DEFAULTS, {})
    named = {name: Policy(**(defaults | own)) for name, own in read.items()}
    if Policy(**defaults).in_manager:
        raise BadSetting(
            'run = "async" in [worker.defaults] would run every job inside the manager.',
            hint="Set it in the table of each type whose code you trust.",
        )
    for name, policy in named.items():
        check_in_manager(name, policy)
    return Policies(Policy(**defaults), MappingProxyType(named))


def check_in_manager(type_: str, policy: Policy) -> None:
    """Raise BadSetting if jobs inside the manager have a setting that needs a process of their own."""
    process_settings = {"user": policy.user, "memory": policy.memory, "cpu": policy.cpu}
    impossible = [name for name, value in process_settings.items() if value]
    if policy.in_manager and impossible:
        raise BadSetting(
            f'[worker.{type_}] has run = "async", so {impossible[0]} has no effect: its jobs have no process of '
            "their own.",
            hint=f'Set run = "fork", or remove {impossible[0]} (in [worker.{type_}], "" or 0 removes a default).',
        )


def table_options(type_: str, table: Mapping[str, Any]) -> dict[str, Any]:
    if not JOB_TYPE.fullmatch(type_):
        raise BadSetting(
            f"[worker.{type_[:80]!a}] names no type of job.",
            hint="A type has at most 64 letters, digits, dots, hyphens and underscores.",
        )
    where = f"[worker.{type_}]"
    for name in table:
        if name not in OPTIONS:
            raise unknown_setting(name, list(OPTIONS), where)
    return {name: checked_value(name, value, where) for name, value in table.items()}


def checked_value(name: str, value: object, where: str) -> object:
    option = OPTIONS[name]
    error_text = f"{name} in {where} cannot be {value!r:.80}"
    if isinstance(value, bool) and option.read is not to_bool:
        raise BadSetting(f"{error_text}: it is no yes or no.")
    try:
        result = option.read(value)
    except (ValueError, TypeError) as error:
        raise BadSetting(f"{error_text}: {error}.") from error
    if result is not None and option.minimum is not None and result < option.minimum:
        raise BadSetting(f"{error_text}: it is at least {bound_text(option.minimum)}.")
    if result is not None and option.maximum is not None and result > option.maximum:
        raise BadSetting(f"{error_text}: it is at most {bound_text(option.maximum)}.")
    return result


def bound_text(bound: float | timedelta) -> str:
    return durations.show(bound) if isinstance(bound, timedelta) else f"{bound:,}"
