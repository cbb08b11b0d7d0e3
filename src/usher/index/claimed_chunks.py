"""The claims of a builder on disk, so that a restarted builder continues with them while their leases last."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from usher.chunk_store import make_folder, translate_disk_errors
from usher.messages.builder import ContentChunk
from usher.private_files import write_file


class ClaimedChunks:
    """A directory with one file for each claim, and beside it the files that were downloaded for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with translate_disk_errors(directory):
            make_folder(directory)

    def content_path(self, chunk: int) -> Path:
        return self.directory / f"{chunk}.warc.gz"

    def source_path(self, chunk: int, source: int) -> Path:
        """The file for the index chunk of a source that is merged into this chunk."""
        return self.directory / f"{chunk}-{source}.idx"

    def add(self, claim: ContentChunk) -> None:
        with translate_disk_errors(self.directory):
            write_file(self._claim_path(claim.chunk_id), msgspec.json.encode(claim))

    def drop(self, chunk: int) -> None:
        """Delete the files of a claim."""
        with suppress(OSError):
            self.content_path(chunk).unlink(missing_ok=True)
            for path in self.directory.glob(f"{chunk}-*.idx"):
                path.unlink()
            self._claim_path(chunk).unlink(missing_ok=True)

    def restore(self) -> list[ContentChunk]:
        """The claims of the previous run; deletes all other files."""
        claims = list(self._read())
        paths = {self._claim_path(claim.chunk_id) for claim in claims}
        with translate_disk_errors(self.directory):
            for path in self.directory.iterdir():
                if path not in paths:
                    path.unlink()
        return claims

    def _read(self) -> Iterator[ContentChunk]:
        for path in self.directory.glob("*.json"):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, OSError):
                yield msgspec.json.decode(path.read_bytes(), type=ContentChunk)

    def _claim_path(self, chunk: int) -> Path:
        return self.directory / f"{chunk}.json"
