"""Log files rotate while their process runs, and lose no line; other programs may move or truncate them."""

import json
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from support.processes.commands import clean
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.processes.terminal import show
from usher.log_file import LogFile, LogLimits
from usher.telemetry import Log, set_up_logging

SMALL = LogLimits(max_bytes=10_000, max_files=4)
PATH = "/v1/components/no-host-"
MANY = LogLimits(max_bytes=10_000, max_files=1_000)


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger("usher")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def files(path: Path) -> list[Path]:
    """The files of a log, the oldest first."""
    older = sorted(path.parent.glob(f"{path.name}.*"), key=lambda file: -int(file.suffix[1:]))
    return [*older, *([path] if path.exists() else [])]


def lines(path: Path) -> list[str]:
    return [line for file in files(path) for line in file.read_text().splitlines()]


def write_numbers(log: LogFile, first: int, last: int) -> None:
    for number in range(first, last):
        log.write(f"line {number} of the test\n")


def test_the_oldest_file_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    write_numbers(LogFile(path, SMALL), 0, 5_000)
    assert [file.name for file in files(path)] == ["a.log.3", "a.log.2", "a.log.1", "a.log"]
    assert all(file.stat().st_size <= SMALL.max_bytes for file in files(path))
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files(path))
    kept = lines(path)
    assert kept == [f"line {number} of the test" for number in range(5_000 - len(kept), 5_000)]
    assert len(kept) > 3 * 9_500 // len("line 1234 of the test\n")


def test_one_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    write_numbers(LogFile(path, LogLimits(10_000, 1)), 0, 2_000)
    assert [file.name for file in files(path)] == ["a.log"]
    assert path.stat().st_size <= 10_000


@pytest.mark.usefixtures("restored_logging")
def test_threads_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    set_up_logging(level="info", form="json", stream=LogFile(path, MANY))

    def work(thread: int) -> None:
        for number in range(300):
            Log("test").info("line", thread=thread, number=number, text="é" * 50)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = [json.loads(line) for line in lines(path)]
    assert len(files(path)) > 10
    for number in range(8):
        own = [event["number"] for event in events if event["thread"] == number]
        assert own == list(range(300))


def move(path: Path) -> None:
    path.replace(path.with_name("moved"))


def copy_and_truncate(path: Path) -> None:
    shutil.copyfile(path, path.with_name("moved"))
    os.truncate(path, 0)


@pytest.mark.parametrize("action", [move, copy_and_truncate])
def test_another_program_rotates_the_file(tmp_path: Path, action: Callable[[Path], None]) -> None:
    path = tmp_path / "a.log"
    log = LogFile(path, SMALL)
    write_numbers(log, 0, 10)
    action(path)
    write_numbers(log, 10, 20)
    assert (tmp_path / "moved").read_text().splitlines()[-1] == "line 9 of the test"
    assert path.read_text().splitlines() == [f"line {n} of the test" for n in range(10, 20)]


def test_what_other_code_writes_to_stderr_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    code = f"""
import subprocess, sys
from pathlib import Path
from usher.log_file import STANDARD_ERROR, LogFile, LogLimits
log = LogFile(Path({str(path)!r}), LogLimits(10_000, 3), handle=STANDARD_ERROR)
for number in range(1_000):
    log.write(f"line {{number}} of the test\\n")
subprocess.run(["sh", "-c", "echo of a program >&2"], check=True)
raise SystemExit("the last words")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert lines(path)[-3:] == ["line 999 of the test", "of a program", "the last words"]


def test_a_service_writes_and_rotates_its_file(data: Path) -> None:
    """MGMT logs each request; every line is complete, and the files have the requests in their order."""
    path = data.with_name("service.log")
    environment = clean({"USHER_LOG_BYTES": "10000", "USHER_LOG_FILES": "3"})
    words = ["--data", str(data), "-v", "--log-file", str(path), "mgmt", "--bind", "127.0.0.1:0"]
    command = [*USHER, *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().split()[-1]
        request_numbers(address, 200)
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    check_rotated(path, 3, 200)


@pytest.mark.soak
def test_usher_up_rotates_the_logs_of_its_processes(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data.parent / "usher.toml").write_text(
        'log_level = "debug"\nlog_bytes = 10000\nlog_files = 3\n'
    )
    path = data / "logs" / "mgmt.log"
    monkeypatch.chdir(data.parent)
    with show(data, "up") as stack:
        stack.is_up()
        port = json.loads((data / "ports.json").read_text())["mgmt"]
        before = stack.role_processes()
        request_numbers(f"http://127.0.0.1:{port}", 200)
        assert eventually(lambda: len(files(path)) == 3, 20), stack.logs
        assert stack.role_processes() == before  # rotated without a restart
        stack.ctrl_c()
        assert stack.ends() == 0
    check_rotated(path, 3, 200)


def request_numbers(address: str, last: int) -> None:
    """Request components that do not exist."""
    for number in range(last + 1):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{address}{PATH}{number}", timeout=20)  # noqa: S310 - MGMT's address


def check_rotated(path: Path, count: int, last: int) -> None:
    assert len(files(path)) == count
    assert sum(file.stat().st_size for file in files(path)) <= count * 10_000
    events = [json.loads(line) for line in lines(path)]
    numbers = [
        int(event["path"].removeprefix(PATH))
        for event in events
        if event.get("path", "").startswith(PATH)
    ]
    assert numbers == list(range(last + 1 - len(numbers), last + 1))
