"""The page's own files: a style, a script and a picture, each named by what is in it, so that it is good for ever.

Comes from the files beside this one; goes to templates as names, and to browsers as bytes.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "static"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served."""

    name: str
    body: bytes
    media_type: str

    @property
    def path(self) -> str:
        return f"/static/{self.name}"


def name_by_digest(files: Iterable[Path]) -> dict[str, Asset]:
    """The files by the names that templates know them by."""
    found = {}
    for file in files:
        body = file.read_bytes()
        digest = hashlib.blake2b(body, digest_size=8).hexdigest()
        name = f"{file.stem}.{digest}{file.suffix}"
        found[file.name] = Asset(name, body, TYPES[file.suffix])
    return found


def load_assets() -> dict[str, Asset]:
    return name_by_digest(sorted(file for file in FOLDER.iterdir() if file.suffix in TYPES))
