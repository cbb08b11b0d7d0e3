"""Stored pages, index files and logs are readable only by their owner, whatever the umask."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.db.fixtures import wait_stopped
from support.mgmt.chunk_trade import documents
from support.processes.free_port import free_port
from support.processes.terminal import PORTS, show
from usher.chunk_store import ChunkStore, PartialFile, keep_files_private
from usher.index import chunk_file
from usher.index.claimed_chunks import ClaimedChunks
from usher.index.component_lifecycle import lock_directory
from usher.index.tantivy_engine import TantivyEngine
from usher.messages.builder import ContentChunk
from usher.private_files import make_data_directory

LINKS = ["https://example.org/one", "https://example.org/two"]
ROOT_DATA_MODE = 0o711 if os.geteuid() == 0 else 0o700


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def loose(directory: Path) -> dict[str, str]:
    """Everything below a directory that other users can reach, with its mode."""
    modes = {
        str(path.relative_to(directory)): stat.S_IMODE(path.lstat().st_mode)
        for path in directory.rglob("*")
        if not path.is_symlink()
    }
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


@pytest.mark.attack(
    10, "reads files of chunks as another local user", "files are 0600, directories 0700"
)
@pytest.mark.usefixtures("no_umask")
def test_files_of_chunks(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path / "content" / "host")
    draft = PartialFile(shelf.path(7))
    draft.write(b"page")
    assert loose(tmp_path) == {}
    draft.commit()
    with lock_directory(tmp_path / "built"):
        chunk_file.write(tmp_path / "built" / "7.idx", 7, documents(7, LINKS, LINKS))
        chunk = ContentChunk(chunk_id=7, host="127.0.0.1:1", keys=[], sha256="", bytes=1)
        ClaimedChunks(tmp_path / "built" / "incoming").add(chunk)
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"000000007.warc.gz", "7.idx", "7.json", "lock"}
    assert loose(tmp_path) == {}


@pytest.mark.usefixtures("no_umask")
def test_an_existing_directory_is_closed(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir(mode=0o777)
    (tmp_path / "index" / "lock").touch(0o666)
    with lock_directory(tmp_path / "index"):
        assert loose(tmp_path) == {}


def test_the_data_directory_ignores_a_strict_umask_too(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert make_data_directory(tmp_path / "new" / "data")
    finally:
        os.umask(before)
    assert not make_data_directory(tmp_path / "new" / "data")
    for path in (tmp_path / "new", tmp_path / "new" / "data"):
        assert stat.S_IMODE(path.stat().st_mode) == ROOT_DATA_MODE


@pytest.mark.attack(
    10, "reads the Tantivy index as another local user", "files are 0600, directories 0700"
)
@pytest.mark.usefixtures("no_umask")
def test_files_of_tantivy(tmp_path: Path) -> None:
    data = tmp_path / "data"
    keep_files_private(data)
    assert stat.S_IMODE(data.stat().st_mode) == ROOT_DATA_MODE
    engine = TantivyEngine.open(data / "index" / "host" / "engine")
    try:
        engine.add(7, documents(7, LINKS, LINKS))
        engine.commit()
        assert loose(data) == {}
        assert (data / "index" / "host" / "engine" / "meta.json").exists()
    finally:
        engine.close()


@pytest.mark.usefixtures("no_umask")
def test_every_role_closes_its_files(data: Path) -> None:
    (data / "demo").mkdir(parents=True)
    for directory in (data, data / "demo"):
        directory.chmod(0o711)
    ports = json.dumps({name: free_port() for name in PORTS})
    (data / "demo" / "ports.json").write_text(ports)
    with show(data, "demo", "--then", "end", ports=False) as usher:
        assert usher.ends(120) == 0, usher.logs
    wait_stopped(data / "demo")
    assert {path.name for path in (data / "demo").iterdir()} >= {"index", "built", "logs"}
    assert loose(data / "demo") == {}
