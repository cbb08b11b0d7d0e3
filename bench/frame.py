"""What every benchmark shares: interleaved repeats, ratios, peers in venvs of their own, one JSON object.

Comes from a `run(bench)` that returns measures; goes to stdout as one object, all talk to stderr.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

from psycopg.conninfo import conninfo_to_dict

from usher.db.areas import Area, AreaDatabases
from usher.db.embedded.locks import exclusive_lock, is_locked
from usher.db.embedded.server_lease import lease_server
from usher.db.embedded.tuning import memory_bytes
from usher.errors import UsherError
from usher.schema import migrate

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".bench"
STOP_SECONDS = 90  # the keeper gives its server 60 and then 10
INTERRUPTED = 130


class PeerMissing(Exception):
    """A peer could not be installed or does not run here; a bench may go on without it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of ours beside the machine's limit and others' figures for the same work.

    A ratio says how many times as good as the other we are, so that **above 1 Usher is better**, whatever the
    unit: usher/other where higher is better (throughput), other/usher where lower is better (time, bytes).
    The best peer is the one that makes this ratio smallest. A ratio is null where there is nothing to compare.
    """

    name: str
    unit: str
    usher: float
    peers: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None
    better: Literal["lower", "higher"] = "lower"
    samples: Sequence[float] = ()

    @property
    def ratio_to_limit(self) -> float | None:
        return None if self.limit is None else self.ratio(self.limit)

    @property
    def ratio_to_best_peer(self) -> float | None:
        if not self.peers:
            return None
        best = min if self.better == "lower" else max
        return self.ratio(best(self.peers.values()))

    def ratio(self, other: float) -> float | None:
        over, under = (other, self.usher) if self.better == "lower" else (self.usher, other)
        return round(over / under, 3) if under else None

    def shown(self) -> dict[str, Any]:
        taken = self.samples
        return {
            "name": self.name,
            "unit": self.unit,
            "usher": brief(self.usher),
            "peers": {name: brief(value) for name, value in self.peers.items()},
            "limit": None if self.limit is None else brief(self.limit),
            "ratio_to_limit": self.ratio_to_limit,
            "ratio_to_best_peer": self.ratio_to_best_peer,
        } | (
            {"min": brief(min(taken)), "max": brief(max(taken)), "repeats": len(taken)}
            if taken
            else {}
        )


def brief(value: float) -> float:
    """Four digits that count; more would be noise."""
    return float(f"{value:.4g}")


def measured(
    name: str,
    unit: str,
    samples: Mapping[str, Sequence[float]],
    *,
    better: Literal["lower", "higher"] = "lower",
) -> Measure:
    """The medians of interleaved samples: "usher" is ours, "limit" the limit, every other name a peer."""
    medians = {who: statistics.median(values) for who, values in samples.items()}
    usher, limit = medians.pop("usher"), medians.pop("limit", None)
    return Measure(name, unit, usher, medians, limit, better, samples["usher"])


def interleaved(
    contenders: Mapping[str, Callable[[], float]], repeats: int
) -> dict[str, list[float]]:
    """Each contender's figures, taken in turns with another one first each time: noise hits all alike."""
    names = list(contenders)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(contenders[name]())
    return figures


@dataclass(slots=True)
class Bench:
    """One run: how thorough it is to be, and what a reader of its figures must know."""

    name: str
    quick: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 5

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.say(text)

    def say(self, text: str) -> None:
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)


class Child:
    """A process of a bench's own script, which does as it is told and says when it began and ended."""

    def __init__(self, python: str, script: Path, name: str, dsn: str) -> None:
        place = conninfo_to_dict(dsn)
        names = {
            "PGHOST": "host",
            "PGPORT": "port",
            "PGUSER": "user",
            "PGPASSWORD": "password",
            "PGDATABASE": "dbname",
        }
        there = {variable: str(place[key]) for variable, key in names.items() if key in place}
        self.process = subprocess.Popen(
            [python, str(script), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **there},
        )

    def tell(self, *words: object) -> None:
        if self.process.stdin:
            print(json.dumps(words), file=self.process.stdin, flush=True)

    def hear(self) -> tuple[float, float, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise PeerMissing("a process of the bench ended early, see above")
        begin, end, answer = json.loads(line)
        return begin, end, answer

    def ask(self, *words: object) -> tuple[float, Any]:
        """How long it took, and the answer."""
        self.tell(*words)
        begin, end, answer = self.hear()
        return end - begin, answer

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def main(bench_name: str, run: Callable[[Bench], Sequence[Measure]]) -> NoReturn:
    """Parse the command line, run, print the one object; 0 if it could be measured."""
    parser = argparse.ArgumentParser(prog=f"bench/{bench_name}.py", description=run.__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, within 50 s")
    bench = Bench(bench_name, parser.parse_args().quick)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # A user's second start finds bytecode; without it we would measure the compiler.
        os.environ["PYTHONPYCACHEPREFIX"] = str(PEERS / "bytecode")
    about = machine()
    with stdout_kept() as stdout:
        measures = [measure.shown() for measure in attempted(bench, run)]
        shown = {"bench": bench_name, "machine": about, "measures": measures, "notes": bench.notes}
        print(json.dumps(shown, indent=2, allow_nan=False), file=stdout)
    sys.exit(0)


def attempted(bench: Bench, run: Callable[[Bench], Sequence[Measure]]) -> Sequence[Measure]:
    """What the run measured; if it could not, the reason on stderr and an exit code."""
    # As an exception, so that directories and servers are cleared away.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return run(bench)
    except KeyboardInterrupt:
        bench.say("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told once and ends here
        if not isinstance(error, UsherError | PeerMissing):
            traceback.print_exc()
        bench.say(
            f"failed: {str(error) or type(error).__name__} {getattr(error, 'hint', '')}".strip()
        )
        sys.exit(1)


@contextmanager
def stdout_kept() -> Iterator[Any]:
    """The real stdout, for us alone: what we or our children print meanwhile goes to stderr."""
    with os.fdopen(os.dup(1), "w") as kept:
        os.dup2(2, 1)
        yield kept


def machine() -> dict[str, Any]:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux: what a container leaves us
    return {
        "cpu": cpu_model(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def peer_venv(name: str, requirements: Sequence[str]) -> Path:
    """The Python of a venv that holds these requirements and nothing of ours, made if it is not there."""
    wanted = "\n".join([platform.python_version(), *requirements])
    venv = PEERS / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    python, stamp = venv / "bin" / "python", venv / "installed"
    PEERS.mkdir(exist_ok=True)
    with exclusive_lock(PEERS / f"{name}.lock"):
        if not stamp.exists():
            print(f"installing {', '.join(requirements)} into {venv} …", file=sys.stderr)
            install([sys.executable, "-m", "venv", "--clear", str(venv)], name)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input"]
            install([*pip, "--disable-pip-version-check", *requirements], name)
            stamp.write_text(wanted)  # last: what was killed before this is made anew
    return python


def install(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"{name} could not be installed: {(done.stderr or done.stdout).strip()}")


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for data directories, gone at the end, after the servers of Usher's in it have stopped.

    Open to pass through: as root the server runs as a user who must reach what is below.
    """
    home = Path(tempfile.mkdtemp(prefix="usher-bench-"))
    home.chmod(0o711)
    try:
        yield home
    finally:
        for lock in [*home.glob("keeper.lock"), *home.glob("*/keeper.lock")]:
            wait_until(partial(free, lock), STOP_SECONDS)
        shutil.rmtree(home)


def free(lock: Path) -> bool:
    return not is_locked(lock)


def wait_until(done: Callable[[], bool], patience: float, *, pause: float = 0.002) -> None:
    deadline = time.monotonic() + patience
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience} s in vain")
        time.sleep(pause)


@asynccontextmanager
async def database() -> AsyncIterator[str]:
    """The DSN of a fresh embedded database with every schema up to date, good within the block."""
    with scratch() as home, lease_server(home / "data") as lodging:
        await migrate.ensure(AreaDatabases(dict.fromkeys(Area, lodging.dsn), lodging))
        yield lodging.dsn
