"""The supervisor process of jobs: runs one job at a time, reads its output, ends it, and kills what it leaves behind.

It gets requests from the runner over a socket and reports what becomes of them. When the socket closes, it ends its job
and itself, so that no job outlives the manager.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import signal
import time

from usher.queue.runners import process_tree
from usher.queue.runners.framing import pack_message, unpack_messages
from usher.queue.runners.job_start import become_job
from usher.queue.runners.output import Output

TYPE_CHECKING = False  # as type checkers read it; the module typing would cost every fork memory
if TYPE_CHECKING:
    from typing import Any

READ_BYTES = 1 << 16
SHORT_JOB_SECONDS = 0.002  # a job that ends within this time is reported once, as started and ended
OUTPUT_SECONDS = 0.5  # between two reports of a running job's output
OUTPUT_BYTES_PER_SECOND = 1 << 22  # of such reports
ORPHAN_CHECK_SECONDS = 10.0
POLL_SECONDS = 0.02  # where the kernel does not notify of the end of a process
FOREVER = float("inf")
OOM_SCORE = b"300"  # when memory runs out, the kernel kills a job before the manager
TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)


def run_supervisor(channel: int) -> None:
    """Serve requests until the socket closes, in a process that the launcher forked."""
    gc.freeze()  # keeps the memory of the launcher shared
    process_tree.become_subreaper()
    raise_oom_score()
    try:
        JobSupervisor(channel).serve()
    except (EOFError, ConnectionError):
        pass
    finally:
        process_tree.kill_descendants()


def raise_oom_score() -> None:
    """Raise the score of this process. Jobs inherit it; they are bigger, so the kernel kills them first."""
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, OOM_SCORE)
        os.close(score)
    except OSError:
        pass  # not on every system


class JobSupervisor:
    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.unparsed = b""
        self.inbox: list[Any] = []
        self.unsent = b""
        self.status_reader, self.status_writer = os.pipe()
        # Results have a pipe of their own: the function of a job can write to it, and it carries only text.
        self.result_reader, self.result_writer = os.pipe()
        self.poll = select.poll()
        self.poll.register(channel, select.POLLIN)
        for descriptor in (channel, self.status_reader, self.result_reader):
            os.set_blocking(descriptor, False)

    def serve(self) -> None:
        """Run one request after the other. Messages about a job that has ended are dropped."""
        left = 0
        while not left:
            self.poll.poll()
            self.receive()
            while self.inbox and not left:
                kind, request, *_ = self.inbox.pop(0)
                if kind == "run":
                    left = SupervisedJob(self, request).run()
                    self.flush()

    def receive(self) -> None:
        """Read what has arrived; EOFError if the socket is closed."""
        try:
            piece = os.read(self.channel, READ_BYTES)
        except BlockingIOError:
            return
        if not piece:
            raise EOFError
        messages, self.unparsed = unpack_messages(self.unparsed + piece)
        self.inbox += messages

    def queue_message(self, *message: object) -> None:
        self.unsent += pack_message(message)

    def send(self) -> None:
        """Send as much as the socket takes: a busy runner must not delay the job."""
        try:
            while self.unsent:
                self.unsent = self.unsent[os.write(self.channel, self.unsent) :]
        except BlockingIOError:
            pass

    def flush(self) -> None:
        """Send everything, however long it takes; no job waits for it."""
        self.send()
        while self.unsent:
            self.poll.modify(self.channel, select.POLLOUT)
            self.poll.poll()
            self.send()
            self.poll.modify(self.channel, select.POLLIN)


class SupervisedJob:
    """One job, from its request to its end."""

    def __init__(self, supervisor: JobSupervisor, request: dict[str, Any]) -> None:
        self.supervisor = supervisor
        self.request = request
        self.output = Output(request["output"])
        self.why, self.detail = "ended", ""
        self.pid = self.pidfd = self.out = -1
        self.code: int | None = None
        self.seconds = 0.0
        self.is_stopping = self.has_others = False  # others: processes that the job started
        self.reported_bytes = 0  # of output
        self.began = time.monotonic()
        self.deadline: float = self.began + request["kill_after"]
        self.next_report = self.began + OUTPUT_SECONDS

    def run(self) -> int:
        """Run the job to its end; return how many of its processes could not be killed."""
        try:
            self.start()
        except OSError as error:
            self.why, self.detail = "unstartable", f"Could not fork: {error.strerror}"
            return self.report(0)
        self.supervisor.queue_message("started", self.pid)
        self.obey()
        self.wait(SHORT_JOB_SECONDS)
        if self.code is None:
            self.supervisor.poll.register(self.out, select.POLLIN)
        while self.code is None:
            self.supervisor.send()
            self.wait(self.seconds_to_wait())
        return self.report(self.kill_others())

    def start(self) -> None:
        self.out, writer = os.pipe()
        os.set_blocking(self.out, False)
        supervisor, parent = self.supervisor, os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                become_job(
                    self.request,
                    supervisor=parent,
                    out=writer,
                    status=supervisor.status_writer,
                    result=supervisor.result_writer,
                )
        finally:
            os.close(writer)
        self.pid = pid
        try:
            self.pidfd = os.pidfd_open(pid)
            self.supervisor.poll.register(self.pidfd, select.POLLIN)
        except (OSError, AttributeError):
            pass  # not on every system; then it polls

    # -- while it runs

    def wait(self, seconds: float) -> None:
        """Wait for output, a message of the runner, the end of the job, or the time."""
        seconds = min(seconds, ORPHAN_CHECK_SECONDS if self.pidfd >= 0 else POLL_SECONDS)
        ready = dict(self.supervisor.poll.poll(seconds * 1000 + 1))
        if self.out in ready:
            self.read_output()
        if self.supervisor.channel in ready:
            self.supervisor.receive()
            self.obey()
        if not ready or self.pidfd < 0 or self.pidfd in ready:
            self.reap()
        if self.code is None:
            self.check_time(time.monotonic())

    def seconds_to_wait(self) -> float:
        """Return the time until the deadline or the next report; less if unsent messages wait for room."""
        if self.supervisor.unsent:
            return POLL_SECONDS
        until = self.deadline
        if self.reported_bytes != self.output.seen:
            until = min(until, self.next_report)
        return max(until - time.monotonic(), 0)

    def read_output(self) -> None:
        piece = os.read(self.out, READ_BYTES)
        if piece:
            self.output.add(piece)
        else:  # the job closed its output and may still run
            self.close(self.out)
            self.out = -1

    def obey(self) -> None:
        """Follow the runner's messages about this job; others are about jobs that have ended."""
        while self.supervisor.inbox:
            kind, key, *arguments = self.supervisor.inbox.pop(0)
            if kind == "end" and key == self.request["key"]:
                self.end(*arguments)

    def end(self, grace: float, why: str, detail: str) -> None:
        """Send TERM, and KILL after the grace. The first reason stays, the shortest grace counts."""
        if not self.is_stopping:
            self.is_stopping, self.why, self.detail = True, why, detail
            self.deadline = FOREVER
            if grace > 0:
                process_tree.signal_group(self.pid, TERM)
        self.deadline = min(self.deadline, time.monotonic() + grace)

    def check_time(self, now: float) -> None:
        """Enforce the time limit and the grace, and report output when that is due."""
        if now >= self.deadline:
            if not self.is_stopping:
                detail = f"It ran longer than {self.request['kill_after']:g} s"
                self.end(self.request["grace"], "timeout", detail)
            else:
                process_tree.signal_group(self.pid, KILL)
                self.deadline = FOREVER
        has_news = self.reported_bytes != self.output.seen
        if now >= self.next_report and has_news and not self.supervisor.unsent:
            self.supervisor.queue_message("output", self.output.text(whole=False))
            self.reported_bytes = self.output.seen
            size = min(self.reported_bytes, self.request["output"])
            self.next_report = now + OUTPUT_SECONDS + size / OUTPUT_BYTES_PER_SECOND

    # -- its end

    def reap(self) -> None:
        """Reap processes that have ended; the job itself may be among them."""
        ended, self.has_others = process_tree.reap_children()
        if self.pid in ended:
            self.code = os.waitstatus_to_exitcode(ended[self.pid])
            self.seconds = time.monotonic() - self.began

    def kill_others(self) -> int:
        """Kill the processes that the job left behind; return how many could not be killed."""
        if process_tree.LINUX and not self.has_others:
            return 0
        try:  # noqa: SIM105 - contextlib would cost every fork memory
            os.killpg(self.pid, KILL)
        except (ProcessLookupError, PermissionError):
            pass  # the others are in other groups
        return process_tree.kill_descendants()

    def report(self, left: int) -> int:
        """Read the rest of the output and report the end."""
        try:
            while self.out >= 0:
                self.read_output()
        except BlockingIOError:  # a process that could not be killed still holds the pipe
            self.close(self.out)
        if self.pidfd >= 0:
            self.close(self.pidfd)
        try:
            self.why, self.detail = marshal.loads(  # noqa: S302 - from our own fork
                os.read(self.supervisor.status_reader, READ_BYTES)
            )
            self.code = None
        except BlockingIOError:
            pass  # the program was started
        if left:
            others = f"{left} of its processes run as another user and could not be killed"
            self.detail = f"{self.detail}; {others}" if self.detail else others
        text = self.output.text() if self.output.seen else ""
        end = (self.code, self.why, self.detail, text, self.seconds, self.read_result(), left)
        self.supervisor.queue_message("ended", *end)
        return left

    def read_result(self) -> str:
        """Return what the function of the job returned, as JSON; empty if it returned nothing."""
        if self.request["how"] != "fork":
            return ""
        text = b""
        try:
            while piece := os.read(self.supervisor.result_reader, READ_BYTES):
                text = text or piece  # all is read, so that the next job finds an empty pipe
        except BlockingIOError:
            pass
        return text.decode("utf-8", "replace")

    def close(self, descriptor: int) -> None:
        try:  # noqa: SIM105
            self.supervisor.poll.unregister(descriptor)
        except KeyError:
            pass  # the job ended before it was registered
        os.close(descriptor)
