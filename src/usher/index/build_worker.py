"""The process that reads pages for a builder; a hostile page may crash it or exceed its memory limit.

It reads jobs from stdin and writes messages to stdout, each a line of JSON. It exits when the builder exits.

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

MAX_ERROR_CHARACTERS: Final = 500
OUT_OF_MEMORY: Final = "its text needs too much memory"


class WorkerMessage(Struct, frozen=True, omit_defaults=True):
    """One message of a worker: the position of the page that it reads next, or the outcome of the job."""

    position: int | None = None
    built: BuiltChunk | None = None
    error: str = ""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the builder stops its workers when they are done
    if len(sys.argv) > 1:
        limit_memory(int(sys.argv[1]))
    messages = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints must not be read as a message
    threading.Thread(target=exit_with_builder, daemon=True).start()
    for line in sys.stdin.buffer:
        run_job(line, messages)


def exit_with_builder() -> None:
    """Exit at once when the builder has closed stdin."""
    poll = select.poll()
    poll.register(0, 0)  # poll reports a hangup without being asked for it
    poll.poll()
    os._exit(0)


def run_job(line: bytes, messages: BinaryIO) -> None:
    def send(message: WorkerMessage) -> None:
        messages.write(msgspec.json.encode(message) + b"\n")

    try:
        job = msgspec.json.decode(line, type=BuildJob)
        work = build_chunk if job.sources is None else merge_chunks
        send(WorkerMessage(built=work(job, lambda place: send(WorkerMessage(position=place)))))
    except MemoryError:
        send(WorkerMessage(error=OUT_OF_MEMORY))
    except UsherError as error:
        send(WorkerMessage(error=error.message[:MAX_ERROR_CHARACTERS]))
    except Exception as error:  # noqa: BLE001 - the builder must hear of every failure
        send(WorkerMessage(error=repr(error)[:MAX_ERROR_CHARACTERS]))


def limit_memory(size: int) -> None:
    with suppress(ValueError, OSError):  # the system has no such limit, or a stricter one
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


if __name__ == "__main__":
    main()
