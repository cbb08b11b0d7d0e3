"""A database and a data directory with chunk files, for tests of backups."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from support.db.fixtures import all_in
from support.processes.commands import Ran, usher
from usher.backup import contents, create
from usher.backup.progress import OnProgress
from usher.chunk_store import INDEX_SUFFIX, ChunkStore, component_stores
from usher.settings import load

SERVER, CRAWLER = "127.0.0.1:8441", "127.0.0.1:8421"
CHUNKS = range(1, 5)
ADD_CHUNK = """
insert into work.chunk (id, state, crawler_id, claimed_at, crawled_at, sha256, bytes, index_state, builder_id, built_at,
    index_sha256, index_bytes)
overriding system value
select %(id)s, 'crawled', c.id, now(), now(), %(content)s, 1, %(state)s, b.id, now(), %(index)s, 1
from work.component c, work.component b
where c.type = 'crawler' and b.type = 'index-server'
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """A database and a data directory with chunk files; the last chunk is crawled but not built."""

    dsn: str
    data: Path

    def usher(self, *words: str | Path, data: Path | None = None, dsn: str = "") -> Ran:
        environment = {"DATABASE_URL": dsn or self.dsn, "USHER_DATA": str(data or self.data)}
        return usher(*words, environment=environment, cwd=self.data.parent)

    def backup(self, directory: Path, *words: str | Path) -> Ran:
        ended = self.usher("backup", "create", directory, *words)
        assert ended.code == 0, ended.err
        return ended

    @property
    def index(self) -> ChunkStore:
        return ChunkStore(self.data / "index" / "127.0.0.1_8441" / "chunks", INDEX_SUFFIX)

    @property
    def content(self) -> ChunkStore:
        return ChunkStore(self.data / "content" / "127.0.0.1_8421")

    def add_chunk(self, chunk: int, *, built: bool) -> Path:
        """Add a chunk with its file."""
        text = os.urandom(100_000)
        path = (self.index if built else self.content).path(chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        self.add_row(chunk, hashlib.sha256(text).hexdigest(), built=built)
        return path

    def add_row(self, chunk: int, sha256: str, *, built: bool) -> None:
        values = {"content": sha256, "index": sha256, "state": "built" if built else None}
        with psycopg.connect(self.dsn) as conn:
            conn.execute(ADD_CHUNK.encode(), {"id": chunk, **values})

    async def create(self, directory: Path, hook: OnProgress) -> contents.BackupInfo:
        """Create a backup in this process, with a hook that is called during each pass."""
        loaded = load({"DATABASE_URL": self.dsn}, overrides={"data": self.data})
        info, _ = await create.create(
            all_in(self.dsn), loaded, directory, base=None, on_progress=hook
        )
        return info


@pytest.fixture
def installation(database: str, tmp_path: Path) -> Installation:
    place = Installation(database, tmp_path / "data")
    with psycopg.connect(database) as conn:
        for host, kind in ((CRAWLER, "crawler"), (SERVER, "index-server")):
            conn.execute("insert into work.component (host, type) values (%s, %s)", [host, kind])
    for chunk in CHUNKS:
        place.add_chunk(chunk, built=chunk != CHUNKS[-1])
    (place.data / "ports.json").write_text('{"mgmt": 8411}')
    (tmp_path / "usher.toml").write_text('contact = "ops@example.org"\n')
    return place


def chunk_files(data: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data)): path.read_bytes()
        for store in component_stores(data)
        for path in map(store.path, store.chunks())
    }


def schemas(dsn: str) -> list[str]:
    query = "select nspname from pg_namespace where nspname in ('work', 'control', 'feeds')"
    with psycopg.connect(dsn) as conn:
        return [name for (name,) in conn.execute(query)]


def chunk_count(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        [count] = conn.execute("select count(*) from work.chunk").fetchone() or [0]
    return int(count)
