"""Every command of docs/tutorial.md is run as it stands there, and prints what the page shows."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from support.processes.commands import clean
from support.processes.free_port import free_port
from support.processes.killable import eventually
from usher.local.ports import Ports

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
# A block of the page, with the comment before it that says what it is.
BLOCK = re.compile(r"(?:<!-- (.+?) -->\n)?```(\w+)\n(.*?)```\n", re.DOTALL)
SITE_PORT = "8000"
WAIT_SECONDS = 120
MIN_COMMANDS = 20
# What differs from run to run, by what replaces it; after that runs of spaces count as one.
VARIABLE = {
    r"\d+ (?:second|minute)s? ago": "AGO",
    r"\b\d+ (?:seconds?|ms|s)\b": "TIME",
    r"\d{4}-\d\d-\d\d \d\d:\d\d": "DATE",
    r"(?<=key=)[\w-]+": "KEY",
    r"(?<=In chunk )\d+": "N",
    r"(?m)^\d+(?= +greet|$)": "N",
    r"(?<=jobs show )\d+": "N",
    r" +": " ",
    r"(?m) +$": "",
}


@dataclass(frozen=True, slots=True)
class Block:
    """Commands with what they print, or the content of a file."""

    note: str
    language: str
    text: str

    def commands(self) -> Iterator[tuple[str, str]]:
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


BLOCKS = [Block(*found) for found in BLOCK.findall(PAGE)]


class Reader:
    """A person who types the commands of the page, with their own ports and directory."""

    def __init__(self, home: Path, ends: ExitStack) -> None:
        self.home, self.ends = home, ends
        self.directory = home
        self.ports = Ports(*(free_port() for _ in asdict(Ports())))
        self.site_port = str(free_port())
        commands = home / "bin"
        commands.mkdir()
        (commands / "usher").write_text(f'#!/bin/sh\nexec {sys.executable} -m usher "$@"\n')
        (commands / "usher").chmod(0o755)
        path = f"{commands}:{os.environ['PATH']}"
        self.environment = clean({"PATH": path, "COLUMNS": "200"})

    def own(self, text: str) -> str:
        """A text of the page with this reader's ports and directory."""
        text = text.replace(f"127.0.0.1:{SITE_PORT}", f"127.0.0.1:{self.site_port}")
        text = text.replace(f"http.server {SITE_PORT}", f"http.server {self.site_port}")
        for name, port in asdict(Ports()).items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{getattr(self.ports, name)}")
        text = text.replace("/home/you", str(self.home))
        return text.replace(" machine ", f" {socket.gethostname()} ")

    def read(self, block: Block) -> None:
        if block.note.startswith("file: "):
            path = self.directory / block.note.removeprefix("file: ")
            path.write_text(self.own(block.text))
        elif block.note.startswith("keeps running"):
            [(command, output)] = block.commands()
            self.start(self.own(command), self.own(output))
        else:
            for command, output in block.commands():
                self.run(self.own(command), self.own(output), repeats=block.note == "repeat")

    def run(self, command: str, output: str, *, repeats: bool) -> None:
        match shlex.split(command):
            case ["cd", directory]:
                self.directory = self.directory / directory
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                self.environment[name] = value.replace("$PWD", str(self.directory))
                self.choose_ports()
            case _:
                printed = self.printed(command)
                deadline = time.monotonic() + WAIT_SECONDS
                while repeats and same(printed) != same(output) and time.monotonic() < deadline:
                    time.sleep(0.3)
                    printed = self.printed(command)
                assert same(printed) == same(output), command

    def choose_ports(self) -> None:
        """Other programs may use the default ports; with these, Usher prints what the page shows."""
        data = Path(self.environment["USHER_DATA"])
        data.mkdir(mode=0o711)
        (data / "ports.json").write_text(json.dumps(asdict(self.ports)))

    def printed(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
        return done.stdout

    def start(self, command: str, output: str) -> None:
        """Start a program that runs until Ctrl-C, and wait for what it prints first."""
        log = self.home / f"{shlex.split(command)[0]}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                # Tests that run in the background of a shell ignore SIGINT, and so would this process.
                ["env", "--default-signal=INT", "bash", "-c", f"exec {command}"],
                cwd=self.directory,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.ends.callback(interrupt, process)
        ready = eventually(lambda: same(log.read_text()).startswith(same(output)), WAIT_SECONDS)
        assert ready, log.read_text()


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C; the program ends."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(WAIT_SECONDS)
        return
    process.kill()
    process.wait()
    raise AssertionError("a program did not end after Ctrl-C")


def same(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, replacement in VARIABLE.items():
        text = re.sub(pattern, replacement, text)
    return text.strip()


def test_the_page_has_commands_for_every_part() -> None:
    commands = [command for block in BLOCKS for command, _ in block.commands()]
    assert len(commands) >= MIN_COMMANDS
    for name in ("crawl", "up", "search", "explain", "add", "remove", "feeds", "jobs", "console"):
        assert any(command.startswith(f"usher {name}") for command in commands), name


def test_a_different_output_is_noticed() -> None:
    assert same("2 results in 12 ms") == same("2 results in 7 ms") != same("3 results in 7 ms")


@pytest.mark.soak
def test_the_commands_print_what_the_page_shows(data: Path) -> None:
    data.mkdir(mode=0o711)
    with ExitStack() as ends:
        reader = Reader(data, ends)
        for block in BLOCKS:
            reader.read(block)
        link = reader.printed("usher console").split()[0]
        assert link.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(link, timeout=20) as answer:  # noqa: S310 - see above
            assert b"<title>" in answer.read()
