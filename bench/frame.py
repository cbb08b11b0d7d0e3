"""Shared code of the benchmarks: interleaved repeats, ratios, peers in their own venvs, output as one JSON object.

A benchmark is a function `run(bench)` that returns measures. The object goes to stdout, messages go to stderr.
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
STOP_SECONDS = 90  # the supervisor gives its server 60 and then 10
INTERRUPTED = 130


class PeerMissing(Exception):
    """A peer could not be installed or does not run here; a benchmark may continue without it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of Usher with the machine's limit and the peers' figures for the same work.

    **A ratio above 1 means that Usher is better**, whatever the unit: usher/other if higher is better (throughput),
    other/usher if lower is better (time, bytes). The best peer is the one with the smallest ratio. A ratio is null
    if there is nothing to compare.
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
    """Round to four significant digits; more would be noise."""
    return float(f"{value:.4g}")


def measured(
    name: str,
    unit: str,
    samples: Mapping[str, Sequence[float]],
    *,
    better: Literal["lower", "higher"] = "lower",
) -> Measure:
    """Return the medians of interleaved samples: "usher", "limit", and every other name is a peer."""
    medians = {who: statistics.median(values) for who, values in samples.items()}
    usher, limit = medians.pop("usher"), medians.pop("limit", None)
    return Measure(name, unit, usher, medians, limit, better, samples["usher"])


def interleaved(
    contenders: Mapping[str, Callable[[], float]], repeats: int
) -> dict[str, list[float]]:
    """Return each contender's figures, measured in rotating turns, so that noise affects all equally."""
    names = list(contenders)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(contenders[name]())
    return figures


@dataclass(slots=True)
class Bench:
    """One run: its thoroughness, and notes for the reader of its figures."""

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
    """A process that executes commands and returns when each began and ended."""

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

    def send(self, *words: object) -> None:
        if self.process.stdin:
            print(json.dumps(words), file=self.process.stdin, flush=True)

    def receive(self) -> tuple[float, float, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise PeerMissing("a process of the bench ended early, see above")
        begin, end, answer = json.loads(line)
        return begin, end, answer

    def ask(self, *words: object) -> tuple[float, Any]:
        """Send a command; return its duration and the answer."""
        self.send(*words)
        begin, end, answer = self.receive()
        return end - begin, answer

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def main(bench_name: str, run: Callable[[Bench], Sequence[Measure]]) -> NoReturn:
    """Parse the command line, run, print the object; exit with 0 if everything was measured."""
    parser = argparse.ArgumentParser(prog=f"bench/{bench_name}.py", description=run.__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, within 50 s")
    bench = Bench(bench_name, parser.parse_args().quick)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # With cached bytecode, as at a user's second start; otherwise the compiler would be measured.
        os.environ["PYTHONPYCACHEPREFIX"] = str(PEERS / "bytecode")
    about = machine()
    with stdout_kept() as stdout:
        measures = [measure.shown() for measure in attempted(bench, run)]
        shown = {"bench": bench_name, "machine": about, "measures": measures, "notes": bench.notes}
        print(json.dumps(shown, indent=2, allow_nan=False), file=stdout)
    sys.exit(0)


def attempted(bench: Bench, run: Callable[[Bench], Sequence[Measure]]) -> Sequence[Measure]:
    """Return what the run measured; on failure print the reason to stderr and exit."""
    # As an exception, so that directories and servers are removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return run(bench)
    except KeyboardInterrupt:
        bench.say("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - every error is printed once and ends the run
        if not isinstance(error, UsherError | PeerMissing):
            traceback.print_exc()
        bench.say(
            f"failed: {str(error) or type(error).__name__} {getattr(error, 'hint', '')}".strip()
        )
        sys.exit(1)


@contextmanager
def stdout_kept() -> Iterator[Any]:
    """Yield the real stdout; other output of this process and its children goes to stderr."""
    with os.fdopen(os.dup(1), "w") as kept:
        os.dup2(2, 1)
        yield kept


def machine() -> dict[str, Any]:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux: the cores of the container
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
    """Return the Python of a venv with these requirements and without Usher; create the venv if necessary."""
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
            stamp.write_text(wanted)  # written last: an incomplete venv is created again
    return python


def install(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"{name} could not be installed: {(done.stderr or done.stdout).strip()}")


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory for data directories; at the end stop the servers of Usher in it and remove it.

    Open to pass through: as root the server runs as a user who must reach what is below.
    """
    home = Path(tempfile.mkdtemp(prefix="usher-bench-"))
    home.chmod(0o711)
    try:
        yield home
    finally:
        for lock in [*home.glob("supervisor.lock"), *home.glob("*/supervisor.lock")]:
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
    """Yield the DSN of a new embedded database with every schema."""
    with scratch() as home, lease_server(home / "data") as lease:
        await migrate.ensure(AreaDatabases(dict.fromkeys(Area, lease.dsn), lease))
        yield lease.dsn
