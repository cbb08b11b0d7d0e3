"""The keeper of one job at a time: starts it, listens to it, ends it, and leaves nobody behind.

Comes in: orders from the runner, over a line. Goes out: what becomes of them. When the line ends, the keeper ends its
job and itself: that is how nothing outlives the manager.
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

TYPE_CHECKING = False  # as type checkers know it; the module typing would weigh on every fork
if TYPE_CHECKING:
    from typing import Any

    from usher.queue.runners.job_start import RunRequestFields

READ_BYTES = 1 << 16
SHORT_JOB_SECONDS = (
    0.002  # seconds in which a short job ends, so that its start and end are told together
)
OUTPUT_SECONDS = 0.5  # seconds between two looks at the output of a running job
OUTPUT_BYTES_PER_SECOND = 1 << 22  # bytes of such looks in a second
ORPHAN_CHECK_SECONDS = 10.0  # seconds after which to look for dead orphans
POLL_SECONDS = 0.02  # the same for everybody, where the kernel does not tell of an end
FOREVER = float("inf")
OOM_SCORE = b"300"  # when memory runs out, the kernel takes a job before it takes the manager
TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)


def run_supervisor(line: int) -> None:
    """A process of its own, forked by the launcher: serve orders until the line ends."""
    gc.freeze()  # what came with the fork stays shared with it
    process_tree.become_subreaper()
    raise_oom_score()
    try:
        JobSupervisor(line).serve()
    except (EOFError, ConnectionError):
        pass
    finally:
        process_tree.kill_descendants()


def raise_oom_score() -> None:
    """Passed on to the jobs, which are bigger and therefore taken first."""
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, OOM_SCORE)
        os.close(score)
    except OSError:
        pass  # not everywhere


class JobSupervisor:
    def __init__(self, line: int) -> None:
        self.line = line
        self.heard = b""
        self.inbox: list[Any] = []
        self.unsaid = b""
        self.status, self.tell = os.pipe()
        # Results come over a pipe of their own: the function that a job runs can write to it, and it holds only text.
        self.results, self.result_end = os.pipe()
        self.poll = select.poll()
        self.poll.register(line, select.POLLIN)
        os.set_blocking(line, False)
        os.set_blocking(self.status, False)
        os.set_blocking(self.results, False)

    def serve(self) -> None:
        """One order after the other; what is meant for one that has ended is let go."""
        left = 0
        while not left:
            self.poll.poll()
            self.hear()
            while self.inbox and not left:
                what, *words = self.inbox.pop(0)
                if what == "run":
                    left = SupervisedJob(self, tuple(words)).through()
                    self.finish()

    def hear(self) -> None:
        """Take in what has come; the end of the line ends everything."""
        try:
            piece = os.read(self.line, READ_BYTES)
        except BlockingIOError:
            return
        if not piece:
            raise EOFError
        messages, self.heard = unpack_messages(self.heard + piece)
        self.inbox += messages

    def say(self, *words: object) -> None:
        self.unsaid += pack_message(words)

    def speak(self) -> None:
        """As much as the line takes: a runner that is busy must not hold up the job."""
        try:
            while self.unsaid:
                self.unsaid = self.unsaid[os.write(self.line, self.unsaid) :]
        except BlockingIOError:
            pass

    def finish(self) -> None:
        """Say everything, however long it takes; there is no job to hold up."""
        self.speak()
        while self.unsaid:
            self.poll.modify(self.line, select.POLLOUT)
            self.poll.poll()
            self.speak()
            self.poll.modify(self.line, select.POLLIN)


class SupervisedJob:
    """One job, from its order to its end."""

    def __init__(self, keeper: JobSupervisor, order: RunRequestFields) -> None:
        self.keeper = keeper
        self.order = order
        self.key, *_, self.kill_after, self.grace, _, _, self.most = order
        self.output = Output(self.most)
        self.why, self.detail = "ended", ""
        self.pid = self.pidfd = self.out = -1
        self.code: int | None = None
        self.seconds = 0.0
        self.told = self.others = False  # told to end; others of its processes live
        self.shown = 0  # bytes of output that had been seen when they were last shown
        self.began = time.monotonic()
        self.deadline = self.began + self.kill_after
        self.news = self.began + OUTPUT_SECONDS

    def through(self) -> int:
        """Run it to its end; how many of its processes are beyond our power."""
        try:
            self.start()
        except OSError as error:
            self.why, self.detail = "unstartable", f"No process could be made: {error.strerror}"
            return self.report(0)
        self.keeper.say("started", self.pid)
        self.attend()
        self.wait(SHORT_JOB_SECONDS)
        if self.code is None:
            self.keeper.poll.register(self.out, select.POLLIN)
        while self.code is None:
            self.keeper.speak()
            self.wait(self.patience())
        return self.report(self.clear())

    def start(self) -> None:
        self.out, theirs = os.pipe()
        os.set_blocking(self.out, False)
        me, tell, order = os.getpid(), self.keeper.tell, self.order
        result = self.keeper.result_end
        try:
            pid = os.fork()
            if pid == 0:
                become_job(order, keeper=me, out=theirs, status=tell, result=result)
        finally:
            os.close(theirs)
        self.pid = pid
        try:
            self.pidfd = os.pidfd_open(pid)
            self.keeper.poll.register(self.pidfd, select.POLLIN)
        except (OSError, AttributeError):
            pass  # not everywhere; then we look often

    # -- while it runs

    def wait(self, seconds: float) -> None:
        """Until something happens: words from the job or the runner, its end, or the time."""
        seconds = min(seconds, ORPHAN_CHECK_SECONDS if self.pidfd >= 0 else POLL_SECONDS)
        ready = dict(self.keeper.poll.poll(seconds * 1000 + 1))
        if self.out in ready:
            self.listen()
        if self.keeper.line in ready:
            self.keeper.hear()
            self.attend()
        if not ready or self.pidfd < 0 or self.pidfd in ready:
            self.look()
        if self.code is None:
            self.tick(time.monotonic())

    def patience(self) -> float:
        """Seconds until the clock has something to say; less if the line has not taken everything."""
        if self.keeper.unsaid:
            return POLL_SECONDS
        until = self.deadline if self.shown == self.output.seen else min(self.deadline, self.news)
        return max(until - time.monotonic(), 0)

    def listen(self) -> None:
        piece = os.read(self.out, READ_BYTES)
        if piece:
            self.output.add(piece)
        else:  # it has closed its output and may work on
            self.forget(self.out)
            self.out = -1

    def attend(self) -> None:
        """Heed the runner; whatever is not about this job is about one that has ended."""
        while self.keeper.inbox:
            what, key, *how = self.keeper.inbox.pop(0)
            if what == "end" and key == self.key:
                self.end(*how)

    def end(self, grace: float, why: str, detail: str) -> None:
        """TERM, and KILL when the grace is over; the first reason stays, the shortest grace counts."""
        if not self.told:
            self.told, self.why, self.detail = True, why, detail
            self.deadline = FOREVER
            if grace > 0:
                process_tree.signal_group(self.pid, TERM)
        self.deadline = min(self.deadline, time.monotonic() + grace)

    def tick(self, now: float) -> None:
        """What the clock says: time is up, grace is over, or the runner waits for news."""
        if now >= self.deadline:
            if not self.told:
                text = f"It ran longer than {self.kill_after:g} s"
                self.end(self.grace, "timeout", text)
            else:
                process_tree.signal_group(self.pid, KILL)
                self.deadline = FOREVER
        if now >= self.news and self.shown != self.output.seen and not self.keeper.unsaid:
            self.keeper.say("output", self.output.text(whole=False))
            self.shown = self.output.seen
            self.news = now + OUTPUT_SECONDS + min(self.shown, self.most) / OUTPUT_BYTES_PER_SECOND

    # -- its end

    def look(self) -> None:
        """Bury who has ended; the job itself may be among them."""
        dead, self.others = process_tree.reap_children()
        if self.pid in dead:
            self.code = os.waitstatus_to_exitcode(dead[self.pid])
            self.seconds = time.monotonic() - self.began

    def clear(self) -> int:
        """End whatever it left behind; how many of them are beyond our power."""
        if process_tree.LINUX and not self.others:
            return 0
        try:  # noqa: SIM105 - contextlib would weigh on every fork
            os.killpg(self.pid, KILL)
        except (ProcessLookupError, PermissionError):
            pass  # what is left is elsewhere
        return process_tree.kill_descendants()

    def report(self, left: int) -> int:
        """Take its last words and tell what became of it."""
        try:
            while self.out >= 0:
                self.listen()
        except BlockingIOError:  # somebody beyond our power still holds the pipe
            self.forget(self.out)
        if self.pidfd >= 0:
            self.forget(self.pidfd)
        try:
            self.why, self.detail = marshal.loads(os.read(self.keeper.status, READ_BYTES))  # noqa: S302 - our own fork
            self.code = None
        except BlockingIOError:
            pass  # no news is good news
        if left:
            others = f"{left} of its processes run as another user and could not be ended"
            self.detail = f"{self.detail}; {others}" if self.detail else others
        text = self.output.text() if self.output.seen else ""
        ending = (self.code, self.why, self.detail, text, self.seconds, self.result(), left)
        self.keeper.say("ended", *ending)
        return left

    def result(self) -> str:
        """What the function of the job returned, as JSON; empty if nothing."""
        if self.order[1] != "fork":
            return ""
        text = b""
        try:
            while piece := os.read(self.keeper.results, READ_BYTES):
                text = text or piece  # all of it is read, so that nothing is left for the next job
        except BlockingIOError:
            pass
        return text.decode("utf-8", "replace")

    def forget(self, end: int) -> None:
        try:  # noqa: SIM105
            self.keeper.poll.unregister(end)
        except KeyError:
            pass  # it was all too quick
        os.close(end)
