"""The job's own process, from the fork to its program.

Comes from the keeper, which has just forked, with the order; goes to the program by exec, or to a function and out.
What keeps a program from running is told to the keeper over the status pipe. Each page of memory that is touched
here is copied for each job, so the way of a function that runs well is kept short, and modules few.
"""

from __future__ import annotations

import errno
import importlib
import marshal
import os
import resource
import signal
import sys
from gc import enable as collect_again
from os import _exit, close, closerange, dup2, setsid
from types import AsyncGeneratorType, GeneratorType

from usher.queue.runners.process_tree import die_with, unblock_signals

TYPE_CHECKING = False  # as type checkers know it; the module typing would weigh on every fork
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import NoReturn

    from usher.queue.job_states import EndReason

    # The fields of an `Order`, in its order.
    RunLimits = tuple[float, float, int | None, int | None, int]
    RunPermissions = tuple[bool, tuple[int, int] | None]
    RunRequestFields = tuple[
        int, str, str, tuple[str, ...], dict[str, str], str, *RunPermissions, *RunLimits
    ]

MAX_DESCRIPTORS = min(os.sysconf("SC_OPEN_MAX"), 1 << 20)
BLOCKED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
)  # what our own processes leave to the jobs
MAX_DETAIL_CHARS = 1000  # characters of a detail, so that the pipe takes it at once


class JobRefused(Exception):
    """The program cannot run; `why` is `missing`, `forbidden` or `unstartable`."""

    def __init__(self, why: EndReason, detail: str) -> None:
        super().__init__(detail)
        self.why = why


def become_job(
    order: RunRequestFields, *, keeper: int, out: int, status: int, result: int
) -> NoReturn:
    """Turn this fork into the job; never returns to the keeper's code."""
    code = 1
    try:
        setsid()
        _, how, program, args, env, directory, defined_only, account, _, _, memory, cpu, _ = order
        if account is not None:
            change_user(*account)
        die_with(keeper)  # after the change of user, which undoes it
        dup2(out, 1)
        dup2(out, 2)
        closerange(3, status)
        closerange(status + 1, result)
        closerange(result + 1, MAX_DESCRIPTORS)
        if directory:
            enter_directory(directory)
        if env:
            set_environment(env)
        if memory is not None:
            set_limit(resource.RLIMIT_AS, memory, memory)
        if cpu is not None:
            set_limit(resource.RLIMIT_CPU, cpu, cpu + 1)  # XCPU first, and a second later KILL
        unblock_signals()
        if how == "fork":
            code = call_function(program, args, status, result, defined_only=defined_only)
        else:
            execute_program(program, args)
    except JobRefused as refused:
        os.write(status, marshal.dumps((refused.why, str(refused)[:MAX_DETAIL_CHARS])))
    except BaseException as error:  # noqa: BLE001 - nothing may go on in the keeper's loop
        code = print_failure(error)
    finally:
        _exit(code)


def change_user(uid: int, gid: int) -> None:
    """Become another user for good: without its groups, and with no way back."""
    try:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    except OSError as error:
        raise JobRefused("unstartable", f"Cannot run as user {uid}: {error.strerror}") from error


def enter_directory(directory: str) -> None:
    try:
        os.chdir(directory)
        sys.path.append(os.getcwd())  # noqa: PTH109
    except (PermissionError, NotADirectoryError) as error:
        raise JobRefused("missing", f"{directory} cannot be entered: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise JobRefused("missing", f"There is no directory {directory}") from error


def set_environment(env: dict[str, str]) -> None:
    try:
        for name, value in env.items():
            os.environ[name] = value
    except (ValueError, OSError) as error:
        raise JobRefused("unstartable", f"The environment cannot be passed on: {error}") from error


def set_limit(which: int, soft: int, hard: int) -> None:
    """Within what we are allowed ourselves."""
    _, most = resource.getrlimit(which)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


# -- a program


def execute_program(program: str, args: tuple[str, ...]) -> NoReturn:
    if not program:
        raise JobRefused("missing", "There is no program without a name")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs expect them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, [program, *args], os.environ)  # noqa: S606 - never a shell
    except OSError as error:
        raise exec_refusal(program, error) from error
    except ValueError as error:
        raise JobRefused("unstartable", f"The arguments cannot be passed on: {error}") from error


def exec_refusal(program: str, error: OSError) -> JobRefused:
    """What the kernel's answer means, in words."""
    match error.errno:
        case errno.ENOENT if os.path.exists(program):  # noqa: PTH110
            return JobRefused("missing", f"There is no interpreter for {program}")
        case errno.ENOENT | errno.ENOTDIR | errno.ENAMETOOLONG | errno.ELOOP:
            return JobRefused("missing", f"There is no program {program!r}")
        case errno.EACCES if os.path.isdir(program):  # noqa: PTH112
            return JobRefused("missing", f"{program} is a directory, not a program")
        case errno.EACCES | errno.EPERM:
            return JobRefused("missing", f"{program} may not be executed: {error.strerror}")
        case errno.ENOEXEC:
            return JobRefused("missing", f"{program} is in no format that this machine runs")
    return JobRefused("unstartable", f"{program}: {error.strerror}")


# -- a function


def call_function(
    program: str, args: tuple[str, ...], status: int, result: int, *, defined_only: bool
) -> int:
    """Call the function with the arguments and pass on what it returns; its exit code."""

    def work() -> None:
        collect_again()
        sys.argv = [program, *args]
        function = load_function(program, defined_only=defined_only)
        close(status)
        value = run_function(function, args)
        if value is not None:
            from usher.worker import encode_result  # noqa: PLC0415 - would weigh on every fork

            os.write(result, encode_result(value).encode())

    try:
        return exit_code_of(work)
    finally:
        flush_streams()


def exit_code_of(work: Callable[[], object]) -> int:
    """Do the work and return its exit code. Print why it failed."""
    try:
        work()
    except JobRefused:
        raise
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:  # noqa: BLE001 - whatever a worker raises
        return print_failure(error)
    return 0


def run_function(function: Callable[..., object], args: Sequence[str]) -> object:
    """Run a function to its end and return its value. What an async function returns is awaited."""
    value = function(*args)
    if hasattr(value, "__await__"):
        import asyncio  # noqa: PLC0415 - would weigh on every fork

        return asyncio.run(run_async_function(lambda: value, ()))
    return check_not_generator(value)


async def run_async_function(function: Callable[..., object], args: Sequence[str]) -> object:
    """Run an async function to its end and return its value."""
    value = function(*args)
    return await value if hasattr(value, "__await__") else check_not_generator(value)


def check_not_generator(value: object) -> object:
    """Raise TypeError for a generator, whose body has not run."""
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        raise TypeError("This worker is a generator and has not run. Remove its yield.")
    return value


def load_function(program: str, *, defined_only: bool) -> Callable[..., object]:
    module, _, name = program.partition(":")
    if module not in sys.modules:
        import_worker_module(module, program)
    found: object = sys.modules[module]
    listed = getattr(found, "__all__", ())
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise JobRefused("missing", f"There is no program {program!r}: {error}") from error
    if not callable(found):
        raise JobRefused("missing", f"{program!r} is not a function")
    # A dotted name leads into what the module imported: `titles:os.system` runs any command.
    own = name in listed or ("." not in name and getattr(found, "__module__", "") == module)
    if defined_only and not own:
        reason = f"{module} neither defines {name} nor lists it in __all__"
        raise JobRefused("forbidden", f"A job may not start {program!r}: {reason}")
    return found


def import_worker_module(module: str, program: str) -> None:
    importlib.invalidate_caches()
    try:
        importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # the last two are names that cannot be
        raise JobRefused("missing", f"There is no program {program!r}: {error}") from error


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib would weigh on every fork
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed or replaced by the job; its own affair


def exit_code(error: SystemExit) -> int:
    """As Python itself does it: nothing is 0, a number is a number, words are printed."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201 - the job's own output
    return 1


def print_failure(error: BaseException) -> int:
    """Print why a function failed: what it says of itself on purpose, else the way there; its exit code."""
    import traceback  # noqa: PLC0415 - would weigh on every fork

    # An error of a module that nobody has imported cannot be at hand; so the queue need not know the worker's side.
    worker = sys.modules.get("usher.worker")
    try:
        if worker and isinstance(error, (worker.TemporaryError, worker.PermanentError)):
            print(error, file=sys.stderr)  # noqa: T201
            return 2 if isinstance(error, worker.PermanentError) else 1
        traceback.print_exception(error.with_traceback(worker_traceback(error)))
    except Exception:  # noqa: BLE001 - no memory, no stderr: then the exit code must do
        return 1
    return 1


def worker_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames that lead to the worker's own code."""
    way = entry = error.__traceback__
    while entry:
        if entry.tb_frame.f_code.co_filename == __file__:
            way = entry.tb_next
        entry = entry.tb_next
    return way
