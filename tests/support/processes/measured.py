"""Commands as processes whose peak memory is measured, and PDFs and index chunks that are built to exhaust it."""

import hashlib
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from backports import zstd

from support.site.pdfs import assembled
from usher.index.chunk_file import MAGIC, VERSION

MIB = 1 << 20
PYTHON = (sys.executable, "-c")
USHER = (sys.executable, "-m", "usher")
# A process inherits the peak of the process that forks it, so a small process starts what is measured.
LAUNCH = """
import os, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), str(usage.ru_maxrss << 10).encode())
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """How a process ended, and the peak memory of it or of a child that it waited for, whichever is larger."""

    code: int
    out: bytes
    err: bytes
    peak_bytes: int


def measured(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> Measured:
    with TemporaryFile() as out, TemporaryFile() as err, TemporaryFile() as peak:
        code = subprocess.run(
            [*PYTHON, LAUNCH, str(peak.fileno()), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=[peak.fileno()],
            check=False,
        ).returncode
        for file in (out, err, peak):
            file.seek(0)
        return Measured(code, out.read(), err.read(), int(peak.read()))


def peak_bytes_of(pid: int) -> int:
    """The peak memory of a process that runs."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} has no memory")


def pdf_bomb(content: bytes, times: int = 1) -> bytes:
    """A PDF of one page whose content stream is packed so many times."""
    stream = content
    for _ in range(times):
        stream = zlib.compress(stream, 1)
    filters = b"/FlateDecode" * times
    return assembled(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[5 0 R]/Count 1>>",
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            b"<<>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 6 0 R/Resources<</Font<</F1 3 0 R>>>>>>",
            b"<</Length %d/Filter[%s]>>stream\n%s\nendstream" % (len(stream), filters, stream),
        ]
    )


def index_file(chunk: int, records: Iterable[bytes], number: int) -> bytes:
    """An index chunk with a right checksum, whatever its records are."""
    packer = zstd.ZstdCompressor(level=1)
    parts = [struct.pack(">8sHQI", MAGIC, VERSION, chunk, number)]
    parts += [packer.compress(struct.pack(">I", len(record)) + record) for record in records]
    data = b"".join([*parts, packer.flush()])
    return data + hashlib.sha256(data).digest()
