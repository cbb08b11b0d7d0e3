"""The job's own process, from the fork to its program or function.

It reports over the status pipe why a program cannot run. Each page of memory that it touches is copied for each job, so
the path of a successful function is short and imports few modules.
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

TYPE_CHECKING = False  # as type checkers read it; the module typing would cost every fork memory
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Any, NoReturn

    from usher.queue.job_states import EndReason

MAX_DESCRIPTORS = min(os.sysconf("SC_OPEN_MAX"), 1 << 20)
# Blocked in our own processes, unblocked in jobs.
BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MAX_DETAIL_CHARS = 1000  # a pipe takes so many in one write


class JobRefused(Exception):
    """The program cannot run; `why` is `missing`, `forbidden` or `unstartable`."""

    def __init__(self, why: EndReason, detail: str) -> None:
        super().__init__(detail)
        self.why = why


def become_job(
    request: dict[str, Any], *, supervisor: int, out: int, status: int, result: int
) -> NoReturn:
    """Turn this fork into the job; never returns to the supervisor's code."""
    code = 1
    try:
        setsid()
        if request["account"] is not None:
            change_user(*request["account"])
        die_with(supervisor)  # after the change of user, which undoes it
        dup2(out, 1)
        dup2(out, 2)
        closerange(3, status)
        closerange(status + 1, result)
        closerange(result + 1, MAX_DESCRIPTORS)
        if request["directory"]:
            enter_directory(request["directory"])
        if request["env"]:
            set_environment(request["env"])
        if (memory := request["memory"]) is not None:
            set_limit(resource.RLIMIT_AS, memory, memory)
        if (cpu := request["cpu"]) is not None:
            set_limit(resource.RLIMIT_CPU, cpu, cpu + 1)  # XCPU first, and a second later KILL
        unblock_signals()
        if request["how"] == "fork":
            code = call_function(request, status, result)
        else:
            execute_program(request["program"], request["args"])
    except JobRefused as refused:
        os.write(status, marshal.dumps((refused.why, str(refused)[:MAX_DETAIL_CHARS])))
    except BaseException as error:  # noqa: BLE001 - the supervisor's loop must not continue in the fork
        code = print_failure(error)
    finally:
        _exit(code)


def change_user(uid: int, gid: int) -> None:
    """Become another user, without supplementary groups and with no way back."""
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
    """Set a limit, at most our own hard limit."""
    _, maximum = resource.getrlimit(which)
    if maximum != resource.RLIM_INFINITY:
        soft, hard = min(soft, maximum), min(hard, maximum)
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
    """Return the refusal that an error of exec means."""
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


def call_function(request: dict[str, Any], status: int, result: int) -> int:
    """Call the function, pass on what it returns, and return its exit code."""

    def work() -> None:
        collect_again()
        program, args = request["program"], request["args"]
        sys.argv = [program, *args]
        function = load_function(program, defined_only=request["defined_only"])
        close(status)
        value = run_function(function, args)
        if value is not None:
            from usher.worker import encode_result  # noqa: PLC0415 - would cost every fork memory

            os.write(result, encode_result(value).encode())

    try:
        return exit_code_of(work)
    finally:
        flush_streams()


def exit_code_of(work: Callable[[], object]) -> int:
    """Do the work and return its exit code; print why it failed."""
    try:
        work()
    except JobRefused:
        raise
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:  # noqa: BLE001 - a worker may raise anything
        return print_failure(error)
    return 0


def run_function(function: Callable[..., object], args: Sequence[str]) -> object:
    """Run a function, also an async one, to its end and return its value."""
    value = function(*args)
    if hasattr(value, "__await__"):
        import asyncio  # noqa: PLC0415 - would cost every fork memory

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
    function: object = sys.modules[module]
    exported = getattr(function, "__all__", ())
    try:
        for part in name.split("."):
            function = getattr(function, part)
    except AttributeError as error:
        raise JobRefused("missing", f"There is no program {program!r}: {error}") from error
    if not callable(function):
        raise JobRefused("missing", f"{program!r} is not a function")
    # A dotted name leads into what the module imported: `titles:os.system` runs any command.
    is_own = "." not in name and getattr(function, "__module__", "") == module
    if defined_only and not is_own and name not in exported:
        reason = f"{module} neither defines {name} nor lists it in __all__"
        raise JobRefused("forbidden", f"A job may not start {program!r}: {reason}")
    return function


def import_worker_module(module: str, program: str) -> None:
    importlib.invalidate_caches()
    try:
        importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # the last two: invalid names
        raise JobRefused("missing", f"There is no program {program!r}: {error}") from error


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib would cost every fork memory
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # closed or replaced by the job


def exit_code(error: SystemExit) -> int:
    """Return the exit code as Python does: None is 0, a number is itself, a text is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201 - the job's own output
    return 1


def print_failure(error: BaseException) -> int:
    """Print the worker's own error text, or the traceback of another error; return the exit code."""
    import traceback  # noqa: PLC0415 - would cost every fork memory

    # If the module is not loaded, the error cannot be one of its classes.
    worker = sys.modules.get("usher.worker")
    try:
        if worker and isinstance(error, (worker.TemporaryError, worker.PermanentError)):
            print(error, file=sys.stderr)  # noqa: T201
            return 2 if isinstance(error, worker.PermanentError) else 1
        traceback.print_exception(error.with_traceback(worker_traceback(error)))
    except Exception:  # noqa: BLE001 - no memory or no stderr: the exit code must do
        return 1
    return 1


def worker_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames that lead to the worker's own code."""
    start = entry = error.__traceback__
    while entry:
        if entry.tb_frame.f_code.co_filename == __file__:
            start = entry.tb_next
        entry = entry.tb_next
    return start
