"""`python -m ha`: the documented high-availability setup in namespaces of its own; the primary is killed under load."""

import argparse
import os
import random
import signal
import sys
from pathlib import Path

from chaos.isolation import INTERRUPTED, new_directory, obstacle, run_isolated
from chaos.network import NetworkError, command
from ha.kills import KILLS, missing_packages
from ha.place import CommandFailed
from ha.run import HaRun

DEFAULT_KILLS = "machine,partition,processes,standby,control,machine"
BOUNDED_FIRST_PAGES = "8"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ha", description=__doc__)
    parser.add_argument(
        "--kills", default=DEFAULT_KILLS, help=f"of {', '.join(KILLS)}, with commas"
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="chooses what is recrawled and searched"
    )
    parser.add_argument(
        "--bounded",
        action="store_true",
        help="fewer pages, the shortest failover, and end before the machine is back",
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and data of the run")
    parser.add_argument("--inside", type=Path, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def outside(options: argparse.Namespace) -> int:
    if unknown := set(options.kills.split(",")) - KILLS.keys():
        raise SystemExit(f"Unknown kills: {sorted(unknown)}. Try {sorted(KILLS)}.")
    missing = ", ".join(missing_packages())
    if reason := obstacle() or (missing and f"{missing} not installed: scripts/packages"):
        print(f"ha: skipped, {reason}")  # noqa: T201
        return 0
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    directory = new_directory("usher-ha-")
    print(f"ha: {options.kills}, seed {seed}, files in {directory}", flush=True)  # noqa: T201
    words = ["--kills", options.kills, "--seed", str(seed)]
    if options.bounded:
        words.append("--bounded")
        os.environ["CHAOS_FIRST_PAGES"] = BOUNDED_FIRST_PAGES
    return run_isolated("ha", words, directory, keep=options.keep)


def inside(options: argparse.Namespace) -> int:
    """Run in the namespaces; /run is hidden, so names of network namespaces stay here."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command("mount", "-t", "tmpfs", "ha", "/run")
    kinds = options.kills.split(",")
    run = HaRun(options.inside, kinds, options.seed, is_bounded=options.bounded)
    try:
        run.all()
    except KeyboardInterrupt:
        print("\n".join([*run.report.recovery(), "ha: interrupted before the checks"]), flush=True)  # noqa: T201
        return INTERRUPTED
    except (TimeoutError, RuntimeError, NetworkError, CommandFailed) as error:
        run.report.problems["stuck"].append(f"{error}; `--keep` keeps the logs")
    print(run.report.text(), flush=True)  # noqa: T201
    return 1 if run.report.failures else 0


def main() -> int:
    options = parsed()
    return inside(options) if options.inside else outside(options)


if __name__ == "__main__":
    sys.exit(main())
