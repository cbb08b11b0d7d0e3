"""What a builder has claimed, on its disk: one that is started again goes on with it, as long as its leases last.

Comes from MGMT, chunk by chunk; goes to a small file for each, which is gone when the chunk is settled.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from usher.chunk_store import at_disk, make_folder
from usher.messages.builder import ContentChunk
from usher.private_files import write_file


class ClaimedChunks:
    """The claims of one builder, and beside each the content that was pulled for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with at_disk(directory):
            make_folder(directory)

    def content(self, chunk: int) -> Path:
        return self.directory / f"{chunk}.warc.gz"

    def source(self, chunk: int, source: int) -> Path:
        """For the index chunk of another chunk that this one is made of."""
        return self.directory / f"{chunk}-{source}.idx"

    def add(self, one: ContentChunk) -> None:
        with at_disk(self.directory):
            write_file(self._note(one.chunk_id), msgspec.json.encode(one))

    def drop(self, chunk: int) -> None:
        with suppress(OSError):
            self.content(chunk).unlink(missing_ok=True)
            for path in self.directory.glob(f"{chunk}-*.idx"):
                path.unlink()
            self._note(chunk).unlink(missing_ok=True)

    def take(self) -> list[ContentChunk]:
        """What was claimed when the builder ended; anything else that is left here goes."""
        found = list(self._found())
        notes = {self._note(one.chunk_id) for one in found}
        with at_disk(self.directory):
            for path in self.directory.iterdir():
                if path not in notes:
                    path.unlink()
        return found

    def _found(self) -> Iterator[ContentChunk]:
        for path in self.directory.glob("*.json"):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, OSError):
                yield msgspec.json.decode(path.read_bytes(), type=ContentChunk)

    def _note(self, chunk: int) -> Path:
        return self.directory / f"{chunk}.json"
