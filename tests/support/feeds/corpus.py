"""feedparser's own corpus, which `scripts/corpus` fetches: small feeds with an expectation in a comment.

Without it the tests are skipped.
"""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urljoin

import pytest

TREE = Path(__file__).parents[3]
SITE = "http://127.0.0.1:8097/"  # the server in the expectations
KINDS = ("wellformed", "illformed", "encoding", "entities")
EXPECTED = re.compile(rb"Description:\s*(.*?)\s*Expect:\s*(.*)\s*-->")
HEADER = re.compile(rb"^Header:\s+([^:]+):(.+)$", re.MULTILINE)
OPENINGS = (
    (b"\x4c\x6f\xa7\x94", "cp037"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\x00<", "utf-32be"),
    (b"<\x00\x00\x00", "utf-32le"),
    (b"\x00<\x00?", "utf-16be"),
    (b"<\x00?\x00", "utf-16le"),
    (b"\xfe\xff", "utf-16"),
    (b"\xff\xfe", "utf-16"),
    (b"\xef\xbb\xbf", "utf-8-sig"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One feed: its bytes, its response headers and the expectation."""

    name: str
    body: bytes
    headers: dict[str, str]
    url: str
    expect: str


def cases() -> Iterator[Case]:
    """All feeds of the corpus."""
    archive = _archive()
    with tarfile.open(archive) as packed:
        for member in packed:
            name = member.name.partition("/tests/")[2]
            if not name.startswith(KINDS) or not name.endswith(".xml"):
                continue
            file = packed.extractfile(member)
            assert file is not None
            yield _case(name, file.read())


def _case(name: str, body: bytes) -> Case:
    readable = body
    if "encoding" in name:
        encoding = next((found for mark, found in OPENINGS if body.startswith(mark)), "")
        readable = body.decode(encoding, "replace").encode() if encoding else body
    found = EXPECTED.search(readable)
    assert found is not None, name
    headers: dict[str, str] = {}
    url = ""
    if "http" in name:
        headers = {
            key.decode().lower(): value.decode().strip() for key, value in HEADER.findall(body)
        }
        headers.setdefault("content-type", "application/xml")
        url = urljoin(f"{SITE}tests/{name}", headers.get("content-location", ""))
        headers["content-location"] = url
    return Case(name, body, headers, url, found[2].decode().strip())


def _archive() -> Path:
    found = TREE / ".corpus" / f"feedparser-{version('feedparser')}.tar.gz"
    if not found.exists():
        pytest.skip("feedparser's corpus is not here: scripts/corpus fetches it")
    return found
