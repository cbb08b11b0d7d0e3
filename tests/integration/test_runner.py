"""Programs get exactly what they are given, and what they do and say comes back."""

import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from integration.jobs_run import ended, function, order, python, run, started
from usher.queue.runners.process_runner import (
    ProcessRunner,
    RunEnded,
    RunRequest,
    passed_environment,
)


@pytest.fixture(scope="module")
async def runner() -> AsyncIterator[ProcessRunner]:
    async with ProcessRunner(preload=("integration.job_functions",)) as one:
        yield one


def script(tmp_path: Path, text: str, mode: int = 0o755) -> str:
    file = tmp_path / "script"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


# -- how they end


@pytest.mark.parametrize("code", [0, 1, 2, 3, 126, 127, 255])
async def test_exit_codes_come_back(runner: ProcessRunner, code: int) -> None:
    for what in (
        python(f"raise SystemExit({code})"),
        function("leave", str(code)),
        order("exec", "/bin/sh", "-c", f"exit {code}"),
    ):
        end = await run(runner, what)
        assert (end.code, end.why, end.detail) == (code, "ended", "")
        assert 0 < end.seconds < 10


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP, signal.SIGINT]
)
async def test_signals_come_back_negative(runner: ProcessRunner, number: int) -> None:
    end = await run(runner, order("exec", "/bin/sh", "-c", f"kill -{number:d} $$"))
    assert (end.code, end.why) == (-number, "ended")


async def test_a_job_is_announced_with_its_own_pid(runner: ProcessRunner) -> None:
    for what in (python("import os; print(os.getpid())"), order("fork", "os:getpid")):
        runner.start(what)
        begin = await started(runner)
        end = await runner.events.get()
        assert isinstance(end, RunEnded)
        assert begin.key == end.key == what.key
        assert begin.pid == end.pid
        assert end.output in {f"{end.pid}\n", ""}


async def test_what_a_function_raises_decides_its_exit(runner: ProcessRunner) -> None:
    end = await run(runner, function("nothing"))
    assert (end.code, end.output) == (0, "")
    end = await run(runner, function("fail", "temporary", "try later"))
    assert (end.code, end.output) == (1, "try later\n")
    end = await run(runner, function("fail", "permanent", "never"))
    assert (end.code, end.output) == (2, "never\n")
    end = await run(runner, function("leave_with", "some words"))
    assert (end.code, end.output) == (1, "some words\n")


async def test_any_other_error_shows_the_way_there(runner: ProcessRunner) -> None:
    end = await run(runner, function("fail", "other", "what"))
    assert end.code == 1
    assert end.output.startswith("Traceback")
    assert end.output.endswith("ValueError: what\n")
    assert "usher/queue" not in end.output
    end = await run(runner, function("fail"))
    assert end.code == 1
    assert "TypeError" in end.output


async def test_an_async_function_is_awaited(runner: ProcessRunner) -> None:
    for name in ("say_later", "say_by_coroutine"):
        end = await run(runner, function(name, "after"))
        assert (end.code, end.output) == (0, "before\nafter\n")
    end = await run(runner, function("fail_later", "permanent", "never"))
    assert (end.code, end.output) == (2, "never\n")
    end = await run(runner, function("fail_later", "other", "what"))
    assert end.code == 1
    assert end.output.endswith("ValueError: what\n")
    assert "usher/queue" not in end.output
    assert "asyncio" not in end.output.replace("await asyncio", "")


@pytest.mark.parametrize("name", ["generate", "generate_later"])
async def test_a_generator_is_an_error_because_its_body_does_not_run(
    runner: ProcessRunner, name: str
) -> None:
    end = await run(runner, function(name))
    assert end.code == 1
    assert "is a generator and has not run" in end.output


# -- what they are given

AWKWARD = (
    "two words",
    'it\'s "quoted"',
    "line\nbreak",
    "'; touch x; '",
    "$(touch x)",
    "",
    "*",
    "-",
    "é€😀",
    "\udcff",
)


async def test_arguments_arrive_as_they_are(runner: ProcessRunner, tmp_path: Path) -> None:
    show = "import sys; sys.stdout.write(ascii(sys.argv[1:]))"
    end = await run(runner, python(show, *AWKWARD, directory=str(tmp_path)))
    assert end.output == ascii(list(AWKWARD))
    end = await run(runner, function("surroundings", *AWKWARD[:8], directory=str(tmp_path)))
    assert end.output.startswith(f"True {tmp_path} {list(AWKWARD[:8])}\n")
    assert not list(tmp_path.iterdir())


async def test_the_environment_is_what_is_given_over_a_clean_one(
    runner: ProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"USHER_JOB_ID": "7", "SPACED": " a 'b'\n$HOME ", "PATH": "/mine"}
    show = "import os; print(os.environ['USHER_JOB_ID'], os.environ['SPACED'], os.environ['PATH'], sorted(os.environ))"
    for what in (
        python(show, env=given),
        function("surroundings", "USHER_JOB_ID", "SPACED", "PATH", env=given),
    ):
        end = await run(runner, what)
        assert "7  a 'b'\n$HOME  /mine" in end.output
        assert "PYTEST" not in end.output
        assert "LD_BIND_NOW" not in end.output
    assert (
        "PYTHONPATH" not in (await run(runner, python(show, env=given))).output
        or "PYTHONPATH" in os.environ
    )
    monkeypatch.setenv("USHER_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("no_proxy", "*")
    assert "secret" not in str(passed_environment(os.environ))
    assert passed_environment(os.environ)["no_proxy"] == "*"


async def test_one_job_leaves_nothing_for_the_next(runner: ProcessRunner) -> None:
    await run(runner, function("surroundings", env={"LEFT": "over"}, directory="/"))
    end = await run(runner, function("surroundings", "LEFT"))
    assert end.output.startswith(f"True {Path.cwd()} ['LEFT']\nNone\n")


async def test_no_descriptor_of_the_manager_is_open(runner: ProcessRunner, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)  # noqa: FBT003
        end = await run(runner, order("exec", "/bin/sh", "-c", "ls -l /proc/self/fd"))
        assert end.output.count("->") == 4  # ls has the directory open itself
        assert end.output.count("pipe:") == 2
        assert "0 -> /dev/null" in end.output
        assert "secret" not in end.output
    show = "import os; print(*sorted(os.listdir('/proc/self/fd')))"
    end = await run(runner, order("fork", "builtins:exec", show))
    # A function has one more, for what it returns; programs that it starts do not inherit it.
    *usual, result = end.output.split()
    assert usual == ["0", "1", "2", "3"]
    show = (
        f"import os; print(os.readlink('/proc/self/fd/{result}')[:5], os.get_inheritable({result}))"
    )
    end = await run(runner, order("fork", "builtins:exec", show))
    assert end.output == "pipe: False\n"


async def test_signals_are_as_a_program_expects_them(runner: ProcessRunner) -> None:
    end = await run(runner, order("exec", "/bin/cat", "/proc/self/status"))
    masks = dict(line.split(":\t") for line in end.output.splitlines())
    # Signals 32 and 33 are the C library's own: no program can set them, and they may be inherited as ignored.
    assert all(int(masks[name], 16) & ~(3 << 31) == 0 for name in ("SigBlk", "SigIgn", "SigCgt"))
    show = "import signal; print([s.name for s in signal.valid_signals() if signal.getsignal(s) != signal.SIG_DFL])"
    end = await run(runner, order("fork", "builtins:exec", show))
    assert sorted(end.output.strip("[]\n").split(", ")) == [
        "'SIGPIPE'",
        "'SIGXFSZ'",
    ]  # as Python has it
    end = await run(
        runner,
        order("fork", "builtins:exec", "import signal; print(signal.pthread_sigmask(0, []))"),
    )
    assert end.output == "set()\n"


async def test_umask_and_directory_are_the_managers(runner: ProcessRunner) -> None:
    end = await run(runner, order("exec", "/bin/sh", "-c", "umask; pwd; cat"))
    mask = os.umask(0o22)
    os.umask(mask)
    assert end.output == f"{mask:04o}\n{Path.cwd()}\n"


async def test_each_fork_has_its_own_chance(runner: ProcessRunner) -> None:
    said = [(await run(runner, function("chance"))).output for _ in range(3)]
    assert len(set(said)) == 3


# -- what they say


@pytest.mark.seed("002.18")
async def test_both_streams_arrive_in_order(runner: ProcessRunner) -> None:
    end = await run(
        runner, order("exec", "/bin/sh", "-c", "echo out 1; echo err 1 >&2; echo out 2; printf é")
    )
    assert end.output == "out 1\nerr 1\nout 2\né"
    end = await run(runner, function("say", "é"))
    assert end.output == "out 1\nerr 1\nout 2\né"


async def test_grandchildren_are_heard(runner: ProcessRunner) -> None:
    end = await run(
        runner,
        order("exec", "/bin/sh", "-c", "(/bin/echo one; (/bin/echo two)) & wait; echo three"),
    )
    assert end.output == "one\ntwo\nthree\n"


async def test_binary_output_becomes_text(runner: ProcessRunner) -> None:
    end = await run(runner, python("import os; os.write(1, bytes(range(256)) + 'é'.encode())"))
    assert "\0" not in end.output
    assert end.output.endswith("\ufffdé")
    assert "ABC" in end.output


async def test_much_output_is_cut_in_the_middle(runner: ProcessRunner) -> None:
    end = await run(runner, python("print('a' * 1000 + 'b' * 100_000 + 'c' * 999)", output=2000))
    assert end.output == "a" * 1000 + "\n… 100,000 bytes left out …\n" + "c" * 999 + "\n"


# -- what cannot be run


@pytest.mark.parametrize(
    "name", ["/no/such/program", "no-such", "", "/etc/hostname/x", "/" + "x" * 300, "true", "ls -l"]
)
async def test_a_missing_program_is_missing(runner: ProcessRunner, name: str) -> None:
    end = await run(runner, order("exec", name))
    assert (end.code, end.why) == (None, "missing")
    assert end.detail.startswith("There is no program")
    assert end.output == ""


async def test_a_program_may_be_named_from_its_directory(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    script(tmp_path, '#!/bin/sh\necho "$0 $1"; pwd\n')
    for name in ("script", "./script"):
        end = await run(runner, order("exec", name, "a b", directory=str(tmp_path)))
        assert (end.code, end.output) == (0, f"{name} a b\n{tmp_path}\n")


async def test_what_may_not_be_executed_is_missing_with_its_own_words(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    end = await run(runner, order("exec", script(tmp_path, "#!/bin/sh\n", mode=0o644)))
    assert (end.code, end.why) == (None, "missing")
    assert "may not be executed" in end.detail
    end = await run(runner, order("exec", str(tmp_path)))
    assert "is a directory" in end.detail
    end = await run(runner, order("exec", script(tmp_path, "#!/no/interpreter\n")))
    assert (end.why, "interpreter" in end.detail) == ("missing", True)
    end = await run(runner, order("exec", script(tmp_path, "just text\n")))
    assert (end.why, "no format" in end.detail) == ("missing", True)


async def test_a_bad_directory_is_missing(runner: ProcessRunner, tmp_path: Path) -> None:
    for make in (partial(order, "exec", "/bin/true"), partial(function, "nothing")):
        end = await run(runner, make(directory=str(tmp_path / "none")))
        assert (end.code, end.why) == (None, "missing")
        assert end.detail == f"There is no directory {tmp_path / 'none'}"
        end = await run(runner, make(directory=script(tmp_path, "")))
        assert "cannot be entered" in end.detail


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("no_such_module:run", "No module named"),
        ("integration.job_functions:no_such", "no attribute"),
        ("integration.job_functions", "no attribute"),
        ("integration.job_functions:", "no attribute"),
        ("integration.job_functions:NOT_A_FUNCTION", "not a function"),
        (":run", "Empty module name"),
        ("..:run", "relative"),
        ("integration.job_functions.deeper:run", "not a package"),
        ("", "Empty module name"),
    ],
)
async def test_a_missing_function_is_missing(
    runner: ProcessRunner, program: str, said: str
) -> None:
    end = await run(runner, order("fork", program))
    assert (end.code, end.why) == (None, "missing")
    assert said in end.detail


@pytest.mark.parametrize(
    "what",
    [
        python("", "nul\0byte"),
        order("exec", "/bin/\0true"),
        function("nothing", "nul\0byte"),
        function("nothing", env={"A": "\0"}),
        function("nothing", env={"A=B": "c"}),
        python("", env={"": "c"}),
        python("", "\ud800"),
        python(
            "", "x" * (1 << 18)
        ),  # longer than the kernel's 128 kB, and than what the line holds
    ],
    ids=str,
)
async def test_words_that_cannot_be_passed_on_are_refused(
    runner: ProcessRunner, what: RunRequest
) -> None:
    end = await run(runner, what)
    assert (end.code, end.why) == (None, "unstartable")
    assert end.detail


async def test_many_long_arguments_arrive(runner: ProcessRunner) -> None:
    many = ["x" * 100_000] * 10
    end = await run(runner, python("import sys; print(sum(map(len, sys.argv[1:])))", *many))
    assert (end.code, end.output) == (0, "1000000\n")


async def test_a_key_is_used_once_at_a_time(runner: ProcessRunner) -> None:
    what = function("sleep", "30")
    runner.start(what)
    with pytest.raises(ValueError, match="running already"):
        runner.start(what)
    runner.kill(what.key)
    assert (await ended(runner)).why == "cancelled"
    runner.start(what)
    runner.kill(what.key)
    assert (await ended(runner)).why == "cancelled"
