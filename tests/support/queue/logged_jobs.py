"""What the jobs of the queue's tests do: each run leaves a line when it begins and one when it ends."""

import os
import random
import sys
import time
from pathlib import Path


def born(pid: int) -> str:
    """When a process began, in the kernel's words; empty if it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] == "Z" else words[19]


def write(book: str, *words: object) -> None:
    """One line, in one write, so that no two processes mix theirs."""
    end = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(end, (" ".join(map(str, words)) + "\n").encode())
    os.close(end)


def begun(book: str, job: str) -> list[tuple[int, str]]:
    """Processes that have run the job."""
    lines = Path(book).read_text().splitlines() if Path(book).exists() else []
    words = [line.split() for line in lines]
    return [(int(one[3]), one[4]) for one in words if one[:2] == ["begin", job]]


def errand(book: str) -> None:
    """Work for a moment; say so if another process is at it."""
    job, attempt = os.environ["USHER_JOB_ID"], os.environ["USHER_ATTEMPT"]
    for pid, birth in begun(book, job):
        if born(pid) == birth:
            write(book, "overlap", job, attempt, pid)
    write(book, "begin", job, attempt, os.getpid(), born(os.getpid()))
    time.sleep(random.random() * 0.05)  # noqa: S311
    if int(job) % 50 == 0 and attempt == "1":
        sys.exit(1)
    write(book, "end", job, attempt)


if __name__ == "__main__":
    errand(sys.argv[1])
