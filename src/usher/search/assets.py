"""The static files of the search page; the name of each has its digest, so that browsers may cache it forever."""

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
    """A static file."""

    name: str
    body: bytes
    media_type: str

    @property
    def path(self) -> str:
        return f"/static/{self.name}"


def name_by_digest(files: Iterable[Path]) -> dict[str, Asset]:
    """The assets by their file names, which the templates use."""
    assets = {}
    for file in files:
        body = file.read_bytes()
        digest = hashlib.blake2b(body, digest_size=8).hexdigest()
        name = f"{file.stem}.{digest}{file.suffix}"
        assets[file.name] = Asset(name, body, TYPES[file.suffix])
    return assets


def load_assets() -> dict[str, Asset]:
    return name_by_digest(sorted(file for file in FOLDER.iterdir() if file.suffix in TYPES))
