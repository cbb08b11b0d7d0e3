"""`python -m chaos`: runs itself again in namespaces of its own, so that the kernel cleans up however the run ends."""

import argparse
import random
import signal
import sys
from pathlib import Path

from chaos.isolation import INTERRUPTED, new_directory, obstacle, run_isolated
from chaos.network import NetworkError, command
from chaos.run import Plan, Run

ALL_KINDS = (
    "kill",
    "freeze",
    "partition",
    "lose-incoming",
    "lose-outgoing",
    "slow-link",
    "netem",
    "full-disk",
    "clock-ahead",
    "clock-behind",
    "pg-restart",
    "pg-standby",
    "pg-failover",
)
DEBIAN_POSTGRESQL = Path("/usr/lib/postgresql/15/bin")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="faults to inject")
    parser.add_argument("--seed", type=int, default=None, help="chooses the faults; else random")
    parser.add_argument("--minutes", type=float, default=180, help="no fault begins later")
    parser.add_argument("--kinds", default=",".join(ALL_KINDS), help="fault types, with commas")
    parser.add_argument("--keep", action="store_true", help="keep logs and data of the run")
    parser.add_argument("--inside", type=Path, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def outside(options: argparse.Namespace) -> int:
    """Start the run in its own namespaces, and remove its directory after it."""
    if reason := obstacle():
        print(f"chaos: skipped, {reason}")  # noqa: T201
        return 0
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    directory = new_directory("usher-chaos-")
    print(f"chaos: seed {seed}, {options.faults} faults, files in {directory}", flush=True)  # noqa: T201
    words = ["--seed", str(seed), "--faults", str(options.faults)]
    words += ["--minutes", str(options.minutes), "--kinds", options.kinds]
    return run_isolated("chaos", words, directory, keep=options.keep)


def inside(options: argparse.Namespace) -> int:
    """Run in the namespaces; /run is hidden, so names of network namespaces stay here."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command("mount", "-t", "tmpfs", "chaos", "/run")
    run = Run(
        Plan(
            faults=options.faults,
            seed=options.seed,
            minutes=options.minutes,
            kinds=options.kinds.split(","),
            directory=options.inside,
            pg_bin=str(DEBIAN_POSTGRESQL) if DEBIAN_POSTGRESQL.is_dir() else "",
        )
    )
    try:
        run.all()
    except KeyboardInterrupt:
        lines = [*run.report.recovery(), "chaos: interrupted before the checks"]
        print("\n".join(lines), flush=True)  # noqa: T201
        return INTERRUPTED
    except (TimeoutError, RuntimeError, NetworkError) as error:
        run.report.problems["stuck"].append(f"{error}; `--keep` keeps the logs")
    print(run.report.text(), flush=True)  # noqa: T201
    return 1 if run.report.failures else 0


def main() -> int:
    options = parsed()
    return inside(options) if options.inside else outside(options)


if __name__ == "__main__":
    sys.exit(main())
