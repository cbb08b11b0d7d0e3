"""Content that attacks its reader: escape sequences, PDFs, index chunks and content chunks that need gigabytes."""

import json
import os
import pty
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from support.processes.commands import clean
from support.processes.measured import MIB, PYTHON, USHER, measured, pdf_bomb
from support.site.pdfs import paper
from support.site.website import Response, Website

ALLOWED = {"USHER_ALLOW_PRIVATE": "127.0.0.1", "COLUMNS": "200"}
PDF = "application/pdf"
# Set the title of the window, write to the clipboard, clear the screen with an 8-bit sequence, reverse the text, hide.
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x1b\\\x9b2J\x7f\u202elive\u2066\u200b\u2028\U000e0041"
PAGE = f"""<html lang=en><title>Title {HOSTILE}</title><h1>Heading {HOSTILE}</h1>
<p>Text {HOSTILE} {"of a page " * 40}</p><a href="/x?{HOSTILE}">link</a>"""
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def fetch(url: str, *words: str) -> tuple[int, str, int]:
    done = measured([*USHER, "fetch", *words, url], clean(ALLOWED))
    return done.code, done.out.decode() + done.err.decode(), done.peak_bytes


def unsafe(text: str) -> list[str]:
    """What a terminal obeys or does not show, but for line ends and joiners."""
    bad = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [ascii(char) for char in text if unicodedata.category(char) in bad and char != "\n"]


def on_terminal(command: list[str]) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, env=clean(ALLOWED), stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    shown = bytearray()
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(ours)
        process.wait()
    return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def web() -> Iterator[Website]:
    pages = {
        "/robots.txt": Response(
            f"User-agent: *\nDisallow: /barred{HOSTILE}*\nDisallow: /barred\n".encode(),
            content_type="text/plain; charset=utf-8",
        ),
        "/page": Response(PAGE.encode()),
        "/text": Response(PAGE.encode(), content_type="text/plain; charset=utf-8"),
        "/coding": Response(
            b"x" * 99, headers={"Content-Encoding": HOSTILE.encode().decode("latin-1")}
        ),
        "/type": Response(b"<p>words</p>", content_type="text/html\x1b[31m; x"),
        "/moved": Response(b"", 301, {"Location": f"/a?{HOSTILE}".encode().decode("latin-1")}),
        "/good.pdf": Response(paper(["Readable words"]), content_type=PDF),
    }
    with Website(pages) as site:
        yield site


@pytest.mark.attack(
    9,
    "a page has escape sequences, C1 and bidi controls in its title, text, links and headers",
    "usher fetch prints them as visible escapes, on a terminal, to a file and as JSON",
)
@pytest.mark.parametrize("path", ["/page", "/text", "/coding", "/type", "/moved", "/barred"])
def test_fetch_prints_no_control_characters(web: Website, path: str) -> None:
    _, to_file, _ = fetch(web.url(path), "--text", "--links")
    terminal = on_terminal([*USHER, "fetch", web.url(path)])
    as_json = on_terminal([*USHER, "fetch", "--json", web.url(path)])
    assert [unsafe(printed) for printed in (to_file, terminal, as_json)] == [[], [], []]
    shown = json.loads(as_json)
    assert shown["result"] in terminal
    if path == "/page":
        assert "\x1b]0;owned" in shown["documents"][0]["text"], "JSON keeps what it escapes"


@pytest.mark.attack(
    9,
    "a command prints hostile text and forgets to escape it",
    "its only way to the terminal escapes it; our own colours stay",
)
def test_the_only_way_to_the_terminal_escapes() -> None:
    program = f"""
from usher.cli.output import echo, style
from usher.telemetry import Log, set_up_logging
hostile = {HOSTILE!r}
echo(f"{{style('bold' + hostile, bold=True)}} {{hostile}} \\x1b[31mred")
for form in ("text", "json"):
    set_up_logging(level="info", form=form)
    Log("index").warning("event", error=hostile, url="https://a.org/" + hostile)
"""
    shown = on_terminal([*PYTHON, program])
    assert shown.count("\x1b[1m") == shown.count("\x1b[0m") == 1
    assert unsafe(shown.replace("\x1b[1m", "").replace("\x1b[0m", "")) == []
    assert r"\u001b[31mred" in shown
    assert shown.count("owned") == 6


@pytest.mark.attack(
    9,
    "a PDF of less than 300 kB unpacks to gigabytes when usher fetch reads it",
    "a child process with 1 GiB reads it and ends; fetch says that it is too large",
)
@pytest.mark.parametrize(
    "bomb",
    [
        lambda: pdf_bomb(bytes(1100 * MIB), times=2),
        lambda: pdf_bomb(b"BT /F1 12 Tf 50 700 Td " + b"(a)Tj " * 5_000_000 + b" ET"),
    ],
    ids=["zeros", "letters"],
)
def test_fetch_of_a_pdf_bomb_needs_bounded_memory(web: Website, bomb: Callable[[], bytes]) -> None:
    body = bomb()
    assert len(body) < 300_000
    web.add("/bomb.pdf", Response(body, content_type=PDF))
    code, printed, peak_bytes = fetch(web.url("/bomb.pdf"))
    assert code == 3, printed
    assert "could not be read: too large" in printed
    assert peak_bytes < 1024 * MIB
    code, printed, _ = fetch(web.url("/good.pdf"))
    assert (code, "Readable words" in printed) == (0, True)
