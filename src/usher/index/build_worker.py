"""The process that reads pages, which may be hostile: it takes jobs one after the other, and may die of any of them.

Comes from the builder, a line of JSON for each job; goes back as lines: at which page it is, and what was made. It ends
with the builder, however that ends, and takes no more memory than it may.

    python -m usher.index.build_worker [BYTES]
"""

import os
import resource
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from usher.errors import UsherError
from usher.index.chunk_documents import BuildJob, BuiltChunk, build_chunk
from usher.index.chunk_merge import merge_chunks

LONGEST: Final = 500  # characters of what went wrong
SIZE_UNKNOWN: Final = "its text needs too much memory"


class WorkerMessage(Struct, frozen=True, omit_defaults=True):
    """One thing that a press says: where it is, or how it ended."""

    at: int | None = None
    made: BuiltChunk | None = None
    failed: str = ""


def main() -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # the builder ends us, when our work is done
    if len(sys.argv) > 1:
        limit(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints is no answer
    threading.Thread(target=end_with_builder, daemon=True).start()
    for line in sys.stdin.buffer:
        do(line, answers)


def end_with_builder() -> None:
    """When the builder is gone, so are we, in the middle of whatever it was."""
    poll = select.poll()
    poll.register(0, 0)  # that it was hung up is always told
    poll.poll()
    os._exit(0)


def do(line: bytes, answers: BinaryIO) -> None:
    def say(what: WorkerMessage) -> None:
        answers.write(msgspec.json.encode(what) + b"\n")

    try:
        job = msgspec.json.decode(line, type=BuildJob)
        work = build_chunk if job.parts is None else merge_chunks
        say(WorkerMessage(made=work(job, lambda place: say(WorkerMessage(at=place)))))
    except MemoryError:
        say(WorkerMessage(failed=SIZE_UNKNOWN))
    except UsherError as error:
        say(WorkerMessage(failed=error.message[:LONGEST]))
    except Exception as error:  # noqa: BLE001 - the builder has to know, whatever it was
        say(WorkerMessage(failed=repr(error)[:LONGEST]))


def limit(memory: int) -> None:
    with suppress(ValueError, OSError):  # of a system that has no such limit, or a stricter one
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


if __name__ == "__main__":
    main()
