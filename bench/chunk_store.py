"""Compares chunk files in object storage with plain HTTP requests to the same server and with copies on the disk."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import hashlib
import http.client
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import frame
from frame import ROOT, Bench, Measure, PeerMissing

sys.path.append(str(ROOT / "tests"))
from support.s3.server import KIND, OPERATOR, PROGRAMS, running_s3
from usher.chunk_store import StoredFile
from usher.http.client.object_transfer import download_object, upload_object
from usher.object_store.address import StoreAccess, StoreAddress
from usher.object_store.store import ObjectStore

FileSize = tuple[str, int, int]  # the name, how many, and the bytes of each
QUICK_SIZES: Sequence[FileSize] = (("100 kB files", 100, 100_000), ("2 MB files", 20, 2_000_000))
SIZES: Sequence[FileSize] = (
    ("100 kB files", 1_000, 100_000),
    ("2 MB files", 200, 2_000_000),
    ("50 MB files", 12, 50_000_000),
)
BUCKET, PREFIX = "chunks", "bench"
TRANSFERS_AT_ONCE = 4
SIGNED_SECONDS = 3600.0
MEGABYTE = 1e6
NOTES = (
    "MB/s, four files at once, everything on this machine: client, server and its disk share the cores",
    "usher: signs a URL and transfers each file as crawlers, builders and index servers do, with MD5 and SHA-256",
    "limit: http.client in four threads, one connection for each file, the same signed URLs, no checksum of its own",
    "local copy: copies each file in four threads, with fsync for uploads and downloads, as without an object store",
    "the server syncs nothing to the disk before it answers (SeaweedFS by default)",
)


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """Files of one size on the disk, and the store that they go to."""

    directory: Path
    files: Sequence[StoredFile]
    store: ObjectStore

    @property
    def megabytes(self) -> float:
        return sum(file.size for file in self.files) / MEGABYTE

    @property
    def keys(self) -> list[str]:
        return [file.path.name for file in self.files]

    def target(self, file: StoredFile) -> Path:
        return self.directory / "copies" / file.path.name

    # -- as Usher does

    async def upload(self) -> None:
        async def send(file: StoredFile) -> None:
            [url] = await self.store.presign("PUT", [file.path.name], seconds=SIGNED_SECONDS)
            await upload_object(url, 1, "content", file)

        await at_once(self.files, send)

    async def download(self) -> None:
        async def fetch(file: StoredFile) -> None:
            [url] = await self.store.presign("GET", [file.path.name], seconds=SIGNED_SECONDS)
            await download_object(url, 1, "content", self.target(file), file.sha256, size=file.size)

        await at_once(self.files, fetch)

    async def back_up(self) -> None:
        async def send(file: StoredFile) -> None:
            await self.store.put_file(f"backup/{file.path.name}", file.path)

        await at_once(self.files, send)

    # -- the limit, and the local disk

    def put(self) -> None:
        urls = asyncio.run(self.store.presign("PUT", self.keys, seconds=SIGNED_SECONDS))

        def send(number: int) -> None:
            request("PUT", urls[number], self.files[number].path.read_bytes())

        in_threads(len(urls), send)

    def get(self) -> None:
        urls = asyncio.run(self.store.presign("GET", self.keys, seconds=SIGNED_SECONDS))

        def fetch(number: int) -> None:
            self.target(self.files[number]).write_bytes(request("GET", urls[number]))

        in_threads(len(urls), fetch)

    def copy(self) -> None:
        def copy_one(number: int) -> None:
            file = self.files[number]
            with file.path.open("rb") as source, self.target(file).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())

        in_threads(len(self.files), copy_one)


async def at_once(files: Sequence[StoredFile], work: Callable[[StoredFile], object]) -> None:
    rest = iter(files)

    async def worker() -> None:
        for file in rest:
            await work(file)  # type: ignore[misc]

    await asyncio.gather(*(worker() for _ in range(TRANSFERS_AT_ONCE)))


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` on every number; fail if one fails."""
    rest, failures, lock = iter(range(count)), list[BaseException](), threading.Lock()

    def worker() -> None:
        try:
            while True:
                with lock:
                    number = next(rest, None)
                if number is None:
                    return
                work(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=worker) for _ in range(TRANSFERS_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def request(method: str, url: str, body: bytes | None = None) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body)
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise RuntimeError(f"{method}: HTTP {response.status} {data[:200]!r}")
    return data


def rate(work: Callable[[], object], megabytes: float) -> Callable[[], float]:
    def measure() -> float:
        began = perf_counter()
        work()
        return megabytes / (perf_counter() - began)

    return measure


def write_files(directory: Path, count: int, size: int) -> list[StoredFile]:
    directory.mkdir()
    (directory / "copies").mkdir()
    files = []
    for number in range(count):
        data, path = os.urandom(size), directory / f"{size}-{number:09d}"
        path.write_bytes(data)
        files.append(StoredFile(path, hashlib.sha256(data).hexdigest(), size))
    return files


def measure_size(bench: Bench, chunks: ChunkFiles, name: str) -> list[Measure]:
    size = chunks.megabytes

    def contest(what: str, own: Callable[[], object], limit: Callable[[], None]) -> Measure:
        bench.say(f"{what} of {name}")
        contenders = {"usher": rate(own, size), "limit": rate(limit, size)}
        contenders["local copy"] = rate(chunks.copy, size)
        figures = frame.interleaved(contenders, bench.repeats)
        return frame.measured(f"{what} of {name}", "MB/s", figures, better="higher")

    return [
        contest("upload", lambda: asyncio.run(chunks.upload()), chunks.put),
        contest("download", lambda: asyncio.run(chunks.download()), chunks.get),
        contest("upload of a backup", lambda: asyncio.run(chunks.back_up()), chunks.put),
    ]


def run(bench: Bench) -> list[Measure]:
    """Measure uploads and downloads of chunk files with a real S3 server on this machine."""
    return measure_transfers(bench, QUICK_SIZES if bench.quick else SIZES)


def measure_transfers(bench: Bench, sizes: Sequence[FileSize]) -> list[Measure]:
    """Measure files of these sizes; PeerMissing without an S3 server."""
    if not PROGRAMS[KIND].exists():
        raise PeerMissing(f"{KIND} is not installed: scripts/s3-server {KIND}")
    for note in NOTES:
        bench.note(note)
    with frame.scratch() as home, running_s3(home / "server") as server:
        bench.note(f"server: {KIND}")
        server.create_bucket(BUCKET)
        access = StoreAccess(server.endpoint, "us-east-1", OPERATOR.access_key, OPERATOR.secret_key)
        store = ObjectStore(StoreAddress(BUCKET, PREFIX), access)
        measures = []
        for name, count, size in sizes:
            directory = home / str(size)
            chunks = ChunkFiles(directory, write_files(directory, count, size), store)
            measures += measure_size(bench, chunks, name)
            shutil.rmtree(directory)
        return measures


if __name__ == "__main__":
    frame.main("chunk_store", run)
