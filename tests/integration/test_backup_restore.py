"""Backups that are restored: elsewhere, over other data, or refused without a change."""

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.db.fixtures import wait_stopped
from support.db.installation import CHUNKS, Installation, chunk_count, chunk_files, schemas
from support.processes.commands import usher
from usher.db.embedded.server_lease import lease_server
from usher.db.pool import connect

LEASE = (
    "update work.chunk set index_state = 'building', build_lease_until = now() + interval '1 hour' "
    "where index_state is null"
)
ENDED_LEASES = "select count(*), count(*) filter (where build_lease_until <= now()) from work.chunk"


def test_a_backup_comes_back_elsewhere(
    installation: Installation, empty_database: str, tmp_path: Path
) -> None:
    backup, target = tmp_path / "a" / "backup", tmp_path / "other"
    with psycopg.connect(installation.dsn) as conn:
        conn.execute(LEASE)
        conn.execute("update work.component set seen_at = now()")
    created = installation.backup(backup)
    assert "chunks      4 of 4" in created.out
    assert f"settings    {tmp_path}/usher.toml" in created.out
    assert "not in a file, so not in the backup: database_url" in created.out
    modes = {path.stat().st_mode & 0o777 for path in backup.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in [backup, *backup.rglob("*/")]}
    assert (modes, folders) == ({0o600}, {0o700})
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=backup, check=False
    )
    assert checked.returncode == 0
    verified = installation.usher("backup", "verify", "--json", backup)
    assert (verified.code, verified.json["damaged"], verified.json["missing"]) == (0, [], 0)
    words = ("backup", "restore", backup, "--settings", tmp_path / "new.toml")
    restored = installation.usher(*words, data=target, dsn=empty_database)
    assert restored.code == 0, restored.err
    assert chunk_files(target) == chunk_files(installation.data)
    assert (target / "ports.json").read_text() == '{"mgmt": 8411}'
    assert (tmp_path / "new.toml").read_text() == (tmp_path / "usher.toml").read_text()
    with psycopg.connect(empty_database) as conn:
        assert conn.execute(ENDED_LEASES).fetchone() == (len(CHUNKS), 1)
    assert installation.usher("db", "roles", "check", dsn=empty_database).code == 0
    status = installation.usher("status", data=target, dsn=empty_database).out
    assert " 1. Usher is not running. Waiting: " in status
    assert " 2. " not in status
    assert "healthy" not in status
    assert not (target / "restore").exists()
    assert not (target / "restore.unfinished").exists()


def change_index(backup: Path) -> Path:
    path = next(iter(sorted(backup.rglob("*.idx"))))
    text = bytearray(path.read_bytes())
    text[500] ^= 1
    path.write_bytes(text)
    return path


def remove_dump(backup: Path) -> Path:
    path = backup / "database" / "control.dump"
    path.unlink()
    return path


def link_elsewhere(backup: Path) -> Path:
    path = next(iter(sorted(backup.rglob("*.idx"))))
    copy = path.with_name("copy")
    path.rename(copy)
    path.symlink_to(copy)
    return path


def shorten_sums(backup: Path) -> Path:
    path = backup / "SHA256SUMS"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.endswith(".idx\n")))
    return path


def leave_the_backup(backup: Path) -> Path:
    path = backup / "SHA256SUMS"
    path.write_text(path.read_text().replace("files/index/", "files/../../"))
    return path


def change_info(backup: Path) -> Path:
    path = backup / "backup.json"
    path.write_text(path.read_text().replace("ports", "sport").replace("UTC", "utc") + " ")
    return path


DAMAGES = [
    change_index, remove_dump, link_elsewhere, shorten_sums, leave_the_backup, change_info,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_refused_and_changes_nothing(
    installation: Installation,
    empty_database: str,
    tmp_path: Path,
    damage: Callable[[Path], Path],
) -> None:
    backup, target = tmp_path / "backup", tmp_path / "other"
    installation.backup(backup)
    path = damage(backup)
    verified = installation.usher("backup", "verify", backup)
    assert verified.code in (1, 3)
    assert str(path) in verified.out + verified.err
    restored = installation.usher("backup", "restore", backup, data=target, dsn=empty_database)
    assert restored.code == 1, restored.err
    assert str(path) in restored.err
    assert not target.exists()
    assert schemas(empty_database) == []


def replace_text(backup: Path, name: str, old: str, new: str) -> None:
    """Change a file and its checksum, as another version would have written it."""
    path, sums = backup / name, backup / "SHA256SUMS"
    text = path.read_bytes()
    changed = text.replace(old.encode(), new.encode())
    assert changed != text
    path.write_bytes(changed)
    before, after = hashlib.sha256(text).hexdigest(), hashlib.sha256(changed).hexdigest()
    sums.write_text(sums.read_text().replace(before, after))


@pytest.mark.parametrize("name", ["backup.json", "database/manifest.json"])
def test_a_backup_of_a_newer_version_is_refused(
    installation: Installation, empty_database: str, tmp_path: Path, name: str
) -> None:
    backup, target = tmp_path / "backup", tmp_path / "other"
    installation.backup(backup)
    old, new = ('"format": 1', '"format": 2') if name == "backup.json" else ('"2', '"9')
    replace_text(backup, name, old, new)
    if name != "backup.json":
        assert installation.usher("backup", "verify", backup).code == 0
    restored = installation.usher("backup", "restore", backup, data=target, dsn=empty_database)
    assert restored.code == 2, restored.err
    assert "is from a newer version of Usher" in restored.err
    assert "Upgrade Usher first." in restored.err
    assert not target.exists()
    assert schemas(empty_database) == []


async def test_a_restore_is_refused_while_usher_runs(
    installation: Installation, empty_database: str, tmp_path: Path
) -> None:
    backup, target = tmp_path / "backup", tmp_path / "other"
    installation.backup(backup)
    async with await connect(empty_database):
        refused = installation.usher("backup", "restore", backup, data=target, dsn=empty_database)
    assert refused.code == 3, refused.err
    assert "Usher uses the database (1 connections of other processes)." in refused.err
    lock = target / "index" / "127.0.0.1_8441" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused = installation.usher("backup", "restore", backup, data=target, dsn=empty_database)
    assert refused.code == 3, refused.err
    assert f"A component of Usher uses {lock.parent}." in refused.err
    assert schemas(empty_database) == []


def test_a_restore_replaces_data_only_if_the_operator_says_so(
    installation: Installation, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    installation.backup(backup)
    before = chunk_files(installation.data)
    (installation.data / "index" / "127.0.0.1_8441" / "engine").mkdir()
    installation.add_chunk(5, built=True)
    refused = installation.usher("backup", "restore", backup)
    assert refused.code == 2, refused.err
    assert "(schema work, control, feeds, multimatch; 5 chunk files)" in refused.err
    assert "add --replace" in refused.err
    assert chunk_count(installation.dsn) == 5
    restored = installation.usher("backup", "restore", backup, "--replace")
    assert restored.code == 0, restored.err
    assert chunk_files(installation.data) == before
    assert chunk_count(installation.dsn) == len(CHUNKS)
    assert not list(installation.data.rglob("engine"))


def test_a_restore_that_fails_in_the_database_changes_nothing(
    installation: Installation, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    installation.backup(backup)
    archive = backup / "database" / "work.dump"
    text = archive.read_bytes()
    archive.write_bytes(text[:-2000])
    sums, before = backup / "SHA256SUMS", chunk_files(installation.data)
    sums.write_text(
        sums.read_text().replace(
            hashlib.sha256(text).hexdigest(), hashlib.sha256(text[:-2000]).hexdigest()
        )
    )
    installation.add_chunk(5, built=True)
    ended = installation.usher("backup", "restore", backup, "--replace")
    assert ended.code == 1, ended.err
    assert "pg_restore failed" in ended.err
    assert chunk_count(installation.dsn) == 5
    assert chunk_files(installation.data).keys() > before.keys()
    marker = installation.data / "restore.unfinished"
    assert not marker.exists()
    marker.write_text(str(backup))  # of a restore that was killed: this one does not complete it
    assert installation.usher("backup", "restore", backup).code == 1
    assert marker.exists()


@pytest.mark.soak
def test_new_roles_get_their_passwords_back(data: Path) -> None:
    """A role that exists already keeps its password, because another database may use it."""
    backup, target = data.with_name("backup"), data.with_name("restored")
    assert usher("--data", data, "db", "migrate").code == 0
    created = usher("--data", data, "db", "roles", "create", "--passwords", "--json")
    assert usher("--data", data, "backup", "create", backup).code == 0
    restored = usher("--data", target, "backup", "restore", backup)
    assert restored.code == 0, restored.err
    assert set(json.loads((backup / "roles.json").read_text())) == created.json.keys() - {
        "usher_worker"
    }
    with lease_server(target) as lease:
        for role, password in created.json.items():
            dsn = make_conninfo(lease.dsn, user=role, password=password)
            with psycopg.connect(dsn) as conn:
                assert conn.execute("select current_user").fetchone() == (role,)
    wait_stopped(target)
