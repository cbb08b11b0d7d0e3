"""Backups that are created: with what the snapshot needs, or unfinished and continued."""

import fcntl
import hashlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from support.db.installation import CHUNKS, Installation, chunk_files
from support.index.chunk_files import small_disk
from support.processes.commands import clean, usher
from support.processes.stack import USHER

BUILD = "update work.chunk set index_state = 'built', index_sha256 = %s where id = 9"
MANY_CHUNKS = 6_000  # copying them takes some seconds


def test_directories_that_are_no_target(installation: Installation, tmp_path: Path) -> None:
    complete, unfinished, other = tmp_path / "complete", tmp_path / "unfinished", tmp_path / "other"
    installation.backup(complete)
    again = installation.usher("backup", "create", complete)
    assert (again.code, "has a complete backup already" in again.err) == (2, True)
    other.mkdir()
    (other / "mine").touch()
    refused = installation.usher("backup", "create", other)
    assert (refused.code, "is not empty" in refused.err) == (2, True)
    unfinished.mkdir()
    (unfinished / "unfinished.json").write_text('{"data": "/elsewhere", "started": "now"}')
    refused = installation.usher("backup", "create", unfinished)
    assert (refused.code, "unfinished backup of /elsewhere" in refused.err) == (2, True)
    for directory, reason in ((unfinished, "is an unfinished backup"), (other, "is not a backup")):
        for command in ("verify", "restore"):
            refused = installation.usher("backup", command, directory)
            assert (refused.code, reason in refused.err) == (2, True)
    (unfinished / "unfinished.json").write_text("")
    with (unfinished / "unfinished.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused = installation.usher("backup", "create", unfinished)
    assert (refused.code, "Another process writes the backup" in refused.err) == (3, True)


def test_there_must_be_data_to_back_up(tmp_path: Path) -> None:
    words = ("backup", "create", tmp_path / "backup")
    ended = usher(*words, environment={"USHER_DATA": str(tmp_path / "no")}, cwd=tmp_path)
    assert ended.code == 1
    assert f"There is no data of Usher in {tmp_path}/no." in ended.err
    assert list(tmp_path.iterdir()) == []


async def test_files_that_are_deleted_meanwhile_are_in_the_backup_if_the_snapshot_needs_them(
    installation: Installation, tmp_path: Path
) -> None:
    unneeded, late = installation.index.path(77), list[Path]()
    unneeded.write_bytes(b"of a chunk that the database does not have")

    def hook(phase: str, done: int, total: int) -> None:
        if phase == "Copying files" and done == total and not late:
            shutil.rmtree(installation.content.directory)
            unneeded.unlink()
            late.append(installation.add_chunk(5, built=True))

    info = await installation.create(tmp_path / "backup", hook)
    assert (info.chunks, info.missing) == (5, 0)
    names = {path.name for path in (tmp_path / "backup" / "files").rglob("*.*")}
    assert {"000000004.warc.gz", "000000005.idx"} <= names
    assert "000000077.idx" not in names


async def test_another_snapshot_is_taken_if_a_file_was_deleted_before_it_was_copied(
    installation: Installation, tmp_path: Path
) -> None:
    passes = list[int]()

    def hook(phase: str, done: int, total: int) -> None:
        if phase == "Copying files" and done == total:
            passes.append(total)
            if len(passes) == 2:  # before the first snapshot
                installation.content.directory.mkdir(exist_ok=True)
                installation.add_row(9, "0" * 64, built=False)
            if len(passes) == 3:  # in it: the chunk was built, and its content deleted
                installation.index.path(9).write_bytes(b"index")
                sha256 = hashlib.sha256(b"index").hexdigest()
                with psycopg.connect(installation.dsn) as conn:
                    conn.execute(BUILD, [sha256])

    info = await installation.create(tmp_path / "backup", hook)
    assert (info.chunks, info.missing) == (5, 0)
    assert passes == [4, 4, 4, 5]


async def test_files_that_are_lost_or_on_other_machines_are_counted(
    installation: Installation, tmp_path: Path
) -> None:
    installation.index.path(1).write_bytes(b"damaged on the disk")
    with psycopg.connect(installation.dsn) as conn:
        conn.execute(
            "insert into work.component (host, type) values ('10.0.0.7:8431', 'index-builder')"
        )
        conn.execute(
            "insert into work.chunk (id, state, claimed_at, index_state, builder_id, index_sha256) "
            "overriding system value "
            "select 9, 'crawled', now(), 'built', id, 'x' from work.component where type = 'index-builder'"
        )
    info = await installation.create(tmp_path / "backup", lambda *_: None)
    assert (info.chunks, info.missing) == (5, 2)
    created = installation.usher("backup", "verify", tmp_path / "backup")
    assert "2 chunks: the files are on other machines or lost." in created.out


def test_chunks_in_the_object_store_are_counted(installation: Installation, tmp_path: Path) -> None:
    with psycopg.connect(installation.dsn) as conn:
        conn.execute(
            "insert into work.chunk_object (kind, chunk_id, sha256, requested_at, stored_at) "
            "select 'index', id, index_sha256, now(), now() from work.chunk where index_state = 'built' "
            "union all select 'content', id, sha256, now(), now() from work.chunk where sha256 is not null"
        )
    created = installation.backup(tmp_path / "backup")
    stored = f"{len(CHUNKS)} chunks: the files are in the object store, which is not in the backup"
    assert f"chunks      {stored}\n" in created.out
    installation.add_chunk(5, built=True)
    created = installation.backup(tmp_path / "later")
    assert (
        f"chunks      1 of 1\n            {stored.replace('chunks', 'more chunks')}\n"
        in created.out
    )
    verified = installation.usher("backup", "verify", tmp_path / "later", "--json").json
    assert (verified["chunks"], verified["missing"], verified["stored"]) == (1, 0, len(CHUNKS))


def test_unchanged_files_are_hard_links_to_the_base(
    installation: Installation, tmp_path: Path
) -> None:
    monday, tuesday = tmp_path / "monday", tmp_path / "tuesday"
    installation.backup(monday)
    installation.add_chunk(5, built=True)
    created = installation.backup(tuesday, "--base", monday, "--json")
    assert created.json["copied_bytes"] == 100_000
    assert created.json["chunks"] == 5
    same = [path for path in monday.rglob("0*.*") if path.is_file()]
    assert len(same) == len(CHUNKS)
    for path in same:
        assert path.samefile(tuesday / path.relative_to(monday))
    shutil.rmtree(monday)
    assert installation.usher("backup", "verify", tuesday).code == 0


def test_a_full_disk_leaves_a_backup_that_can_be_continued(
    installation: Installation, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "300k"):
        ended = installation.usher("backup", "create", disk / "backup")
        assert ended.code == 1
        assert "No space left on device" in ended.err
        assert f"To continue it: usher backup create {disk}/backup" in ended.err
        copied = [path.name for path in disk.rglob("0*.*") if path.is_file()]
        assert copied
        assert not list(disk.rglob("*.part"))
        subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        ended = installation.backup(disk / "backup", "--json")
        assert ended.json["copied_bytes"] == 100_000 * (len(CHUNKS) - len(copied))
        assert installation.usher("backup", "verify", disk / "backup").code == 0


def freeze_when(process: subprocess.Popen[str], condition: Callable[[], bool]) -> bool:
    """Let a process run for short times until a condition holds; it is frozen then, however busy this machine is."""
    for _ in range(600):
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
        if condition():
            return True
    return False


@pytest.mark.soak
def test_ctrl_c_ends_soon_and_the_same_command_continues(
    installation: Installation, tmp_path: Path
) -> None:
    backup, store = tmp_path / "backup", installation.index
    for chunk in range(100, 100 + MANY_CHUNKS):
        store.path(chunk).parent.mkdir(exist_ok=True)
        store.path(chunk).write_bytes(b"index")
    process = subprocess.Popen(
        # Tests that run in the background of a shell ignore SIGINT, and so would this process.
        ["env", "--default-signal=INT", *USHER, "backup", "create", str(backup)],
        env=clean({"DATABASE_URL": installation.dsn, "USHER_DATA": str(installation.data)}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert freeze_when(process, lambda: any(map(Path.is_file, (backup / "files").rglob("*"))))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, "interrupted" in said) == (130, True)
    assert f"To continue it: usher backup create {backup}" in said
    copied = chunk_files(backup / "files")
    assert len(copied) < MANY_CHUNKS
    size = sum(map(len, chunk_files(installation.data).values())) - sum(map(len, copied.values()))
    assert installation.backup(backup, "--json").json["copied_bytes"] == size
