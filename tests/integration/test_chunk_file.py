"""Reading and writing index chunks; damaged files are refused with a reason."""

import hashlib
import struct
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from backports import zstd

from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.chunk_file import MAGIC, MAX_DOCUMENT_BYTES, MAX_DOCUMENTS, VERSION
from usher.index.document import IndexDocument

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def documents(number: int, size: int = 1) -> list[IndexDocument]:
    return [
        IndexDocument(
            key=f"https://a.org/{n}", url=f"https://a.org/{n}", host="a.org", chunk=7, crawled=NOW, domain64=1 << 62,
            title=f"Page {n} \u6771", headings=("a", "b"), body=f"word{n} " * size, simhash=-1, text64=2**63,
        )
        for n in range(number)
    ]  # fmt: skip


def sealed(payload: bytes, number: int, *, version: int = VERSION, magic: bytes = MAGIC) -> bytes:
    """A file with a right checksum, whatever is in it."""
    start = struct.pack(">8sHQI", magic, version, 7, number) + payload
    return start + hashlib.sha256(start).digest()


def packed(*records: bytes) -> bytes:
    return zstd.compress(b"".join(struct.pack(">I", len(record)) + record for record in records))


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        list(chunk_file.read(path)[1])
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("number", [0, 1, 50])
def test_written_documents_are_read(tmp_path: Path, number: int) -> None:
    path = tmp_path / "7"
    written = chunk_file.write(path, 7, documents(number, 300))
    assert chunk_file.check(path, 7) == written
    header, found = chunk_file.read(path, 7)
    assert list(found) == documents(number, 300)
    assert header == written
    assert header.documents == number
    assert header.size == path.stat().st_size
    assert [one.name for one in tmp_path.iterdir()] == ["7"]
    assert chunk_file.write(path, 7, documents(number, 300)).sha256 == written.sha256


def test_every_truncation_and_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "7"
    chunk_file.write(path, 7, documents(3))
    good = path.read_bytes()
    for size in range(len(good)):
        assert "truncated" in (told := refused(path, good[:size])) or size == 0, told
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        refused(path, bytes(bad))
    assert "damaged" in refused(path, good + b"x")


def test_other_files_and_other_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "7"
    assert "is not an index chunk" in refused(path, b"")
    assert "is not an index chunk" in refused(path, b"<html>not found</html>" * 9)
    assert "is not an index chunk" in refused(path, sealed(b"", 0, magic=b"USHERCON"))
    assert "has version 2; this program reads version 1" in refused(path, sealed(b"", 0, version=2))
    with pytest.raises(BadInput, match="No such file"):
        chunk_file.check(tmp_path / "none")
    with pytest.raises(BadInput, match="Is a directory"):
        chunk_file.read(tmp_path)
    chunk_file.write(path, 7, [])
    with pytest.raises(BadInput, match="holds chunk 7, not 8"):
        chunk_file.check(path, 8)


def test_wrong_contents_with_a_correct_checksum_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "7"
    [one] = map(msgspec.msgpack.encode, documents(1))
    huge = zstd.compress(struct.pack(">I", MAX_DOCUMENT_BYTES + 1))
    for payload, number in [
        (b"", 1), (b"no zstd at all", 1), (packed(), 1), (packed(one), 2), (packed(one, one), 1), (packed(b"\xc1"), 1),
        (packed(b"\x80"), 1), (packed(one[:-1]), 1), (packed(one) + b"more", 1), (packed(one)[:-3], 1), (huge, 1),
        (packed(one) + packed(one), 2), (packed(msgspec.msgpack.encode({"key": 1})), 1),
    ]:  # fmt: skip
        assert "is not what its header says" in refused(path, sealed(payload, number))


def test_a_bomb_is_decompressed_block_by_block(tmp_path: Path) -> None:
    path = tmp_path / "7"
    packer = zstd.ZstdCompressor(level=1)
    zeros = bytes(2**20)
    payload = packer.compress(struct.pack(">I", 0)) + b"".join(
        packer.compress(zeros) for _ in range(300)
    )
    path.write_bytes(sealed(payload + packer.flush(), MAX_DOCUMENTS))
    tracemalloc.start()
    with pytest.raises(BadInput, match="is not what its header says"):
        list(chunk_file.read(path)[1])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20_000_000


def test_a_big_chunk_is_read_document_by_document(tmp_path: Path) -> None:
    path = tmp_path / "7"
    chunk_file.write(path, 7, documents(60, 60_000))
    tracemalloc.start()
    number = sum(1 for _ in chunk_file.read(path)[1])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert number == 60
    assert most < 12_000_000  # all of it would be 27 MB


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "7"
    chunk_file.write(path, 7, documents(1))
    before = path.read_bytes()
    huge = msgspec.structs.replace(documents(1)[0], body="x" * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(BadInput, match="bytes, more than"):
        chunk_file.write(path, 7, [huge])
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["7"]


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_chunk_file import documents
from usher.index import chunk_file
print("ready", flush=True)
for n in range(1000000):
    chunk_file.write(Path(sys.argv[1]), 7, documents(1 + n % 9, 2000))
"""


def test_a_kill_during_a_write_leaves_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "7"
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), here], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        while not path.exists():
            assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert 1 <= len(list(chunk_file.read(path, 7)[1])) <= 9
