"""`usher bench`: run a benchmark of this checkout."""

import subprocess
import sys
from pathlib import Path

import click

from usher.cli.output import echo
from usher.errors import NotFound

BENCH_DIRECTORY = Path(__file__).parents[4] / "bench"


@click.command()
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="A smaller run of less than 50 s.")
def bench(name: str | None, *, quick: bool) -> int:
    """Run a benchmark and print one JSON object; without a name, list them.

    \b
    Examples:
      usher bench
      usher bench embedded --quick
    """
    names = sorted(
        path.stem
        for path in BENCH_DIRECTORY.glob("[a-z]*.py")
        if path.stem != "frame" and "_" not in path.stem
    )
    if name is None:
        echo("\n".join(names))
        return 0
    if name not in names:
        raise NotFound(
            f"There is no benchmark named {name!r} in {BENCH_DIRECTORY}.",
            hint=f"One of: {', '.join(names)}." if names else "Use a checkout of the source.",
        )
    command = [sys.executable, str(BENCH_DIRECTORY / f"{name}.py"), *(["--quick"] if quick else [])]
    return subprocess.run(command, check=False).returncode
