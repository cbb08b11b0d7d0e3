"""Writes docs/images: a recording of the terminal as an animated SVG, and a screenshot of the search page.

`make pictures` runs it. It crawls the demo site, so it needs no network; the screenshot needs Debian's chromium.
"""

import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_plus

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
USHER = [sys.executable, "-m", "usher"]
WIDTH, LINE_HEIGHT, MARGIN = 860, 19, 14
END_SECONDS = 5.0  # the last picture stays
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
QUERY = "keeper's cat"
DATA = "~/.local/share/usher/demo"  # shown instead of the temporary directory


class Line(NamedTuple):
    at: float
    text: str


def record(command: list[str], shown: str, start: float) -> list[Line]:
    """Run a command on a pseudo-terminal; return its prompt and the lines that stay on the screen, with their times."""
    begun, lines, rest = time.monotonic(), [Line(start, f"$ {shown}")], ""
    controller, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = subprocess.Popen(command, stdout=screen, stderr=screen, close_fds=True)
    os.close(screen)
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # the last process with this terminal has ended
            break
        if not data:
            break
        *complete, rest = (rest + data.decode()).split("\n")
        now = start + 1 + time.monotonic() - begun
        lines += [
            Line(now, ESCAPE.sub("", line)) for line in complete if ESCAPE.sub("", line).strip()
        ]
    process.wait()
    return lines


def is_progress(line: Line) -> bool:
    """Whether the line is part of the display that is redrawn until the crawl ends."""
    return any(word in line.text for word in ("pages/s", "--delay", "  Search page"))


def svg(lines: list[Line]) -> str:
    """The lines as an animated picture: each appears at its time, then everything begins again."""
    length = lines[-1].at + END_SECONDS
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img"',
        ' aria-label="A crawl of the demo site in a terminal"><style>',
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d7dce2;white-space:pre}",
        "@media (prefers-reduced-motion:no-preference){",
    ]
    for number, line in enumerate(lines):
        share = 100 * line.at / length
        parts.append(
            f"@keyframes k{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}"
        )
        parts.append(f"#l{number}{{animation:k{number} {length:.1f}s infinite}}")
    parts.append('}</style><rect width="100%" height="100%" rx="8" fill="#14181d"/>')
    for number, line in enumerate(lines):
        y = MARGIN + (number + 1) * LINE_HEIGHT - 5
        color = ' style="fill:#7fd1ae"' if line.text.startswith("$") else ""
        parts.append(
            f'<text id="l{number}" x="{MARGIN}" y="{y}"{color}>{html.escape(line.text[:108])}</text>'
        )
    return "".join([*parts, "</svg>\n"])


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """Run `usher up` on the crawled demo; yields the address of its search page."""
    command = [*USHER, "--data", str(data), "--quiet", "up"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        address = re.search(r"http://[^/]+/", line)
        if address is None:
            raise SystemExit("`usher up` did not start.")
        yield address[0]
    finally:
        process.terminate()
        process.wait()


def take_screenshot(url: str) -> None:
    words = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,760"]
    picture = f"--screenshot={IMAGES / 'search.png'}"
    quiet = subprocess.DEVNULL
    subprocess.run(["chromium", *words, picture, url], check=True, stdout=quiet, stderr=quiet)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="usher-pictures-"))
    data.chmod(0o755)  # the account of the embedded PostgreSQL must reach it
    own = data / "demo"
    demo = [*USHER, "--data", str(data), "demo", "--then", "end"]
    try:
        lines = [line for line in record(demo, "usher demo", 0) if not is_progress(line)]
        with serving(own) as address:
            search = [*USHER, "--data", str(own), "search", "--limit", "2", QUERY]
            lines += record(search, f'usher search "{QUERY}"', lines[-1].at + 1)
            if shutil.which("chromium"):
                take_screenshot(f"{address}?q={quote_plus(QUERY)}")
        named = (Line(line.at, line.text.replace(str(own), DATA)) for line in lines)
        (IMAGES / "terminal.svg").write_text(svg(list(named)))
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
