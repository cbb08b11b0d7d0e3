"""Backups in object storage: created, interrupted, verified, damaged and restored, on a real S3 server."""

import hashlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from support.db.installation import CHUNKS, Installation, chunk_count, chunk_files
from support.processes.commands import Ran, clean, usher
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.s3.fault_proxy import FaultProxy, Faults
from support.s3.server import OPERATOR, S3Server

LARGE_BYTES = 20_000_000  # three parts
WAIT_SECONDS = 60
pytestmark = [pytest.mark.usefixtures("s3_server"), pytest.mark.soak]


@dataclass(frozen=True, slots=True)
class BucketBackup:
    """An installation, a bucket, and a proxy between them."""

    installation: Installation
    server: S3Server
    proxy: FaultProxy
    bucket: str

    def url(self, prefix: str = "monday") -> str:
        return f"s3://{self.bucket}/usher/{prefix}"

    def stored_keys(self, prefix: str = "monday") -> list[str]:
        folder = f"usher/{prefix}/"
        return [key.removeprefix(folder) for key in self.server.requests.keys(self.bucket, folder)]

    def environment(self, *, data: Path | None = None, dsn: str = "") -> dict[str, str]:
        return {
            "DATABASE_URL": dsn or self.installation.dsn,
            "USHER_DATA": str(data or self.installation.data),
            "USHER_S3_ENDPOINT": self.proxy.endpoint,
            "USHER_S3_ACCESS_KEY": OPERATOR.access_key,
            "USHER_S3_SECRET_KEY": OPERATOR.secret_key,
        }

    def usher(self, *words: str, data: Path | None = None, dsn: str = "", **more: str) -> Ran:
        environment = {**self.environment(data=data, dsn=dsn), **more}
        return usher(*words, environment=environment, cwd=self.installation.data.parent)

    def create(self, prefix: str = "monday", *words: str) -> str:
        ended = self.usher("backup", "create", self.url(prefix), *words)
        assert ended.code == 0, ended.err
        return ended.out

    def start_create(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*USHER, "backup", "create", self.url()],
            env=clean(self.environment()),
            cwd=self.installation.data.parent,
            stderr=subprocess.DEVNULL,
        )

    def uploads(self, since: int = 0) -> list[str]:
        """The chunk files that were uploaded, by the requests since then."""
        requests = [line for line in self.proxy.requests[since:] if line.startswith("PUT")]
        return sorted(
            {
                line.split("/files/")[1].split()[0].split("?")[0]
                for line in requests
                if "/files/" in line
            }
        )


@pytest.fixture
def backup(
    installation: Installation, s3_server: S3Server, s3_proxy: FaultProxy, bucket: str
) -> BucketBackup:
    return BucketBackup(installation, s3_server, s3_proxy, bucket)


def add_large_chunk(installation: Installation, chunk: int) -> Path:
    """Add a chunk whose file is uploaded in parts."""
    text = os.urandom(LARGE_BYTES)
    path = installation.index.path(chunk)
    path.write_bytes(text)
    installation.add_row(chunk, hashlib.sha256(text).hexdigest(), built=True)
    return path


def test_a_backup_in_a_bucket_is_restored(
    backup: BucketBackup, empty_database: str, tmp_path: Path
) -> None:
    add_large_chunk(backup.installation, 5)
    backup.create()
    keys = backup.stored_keys()
    assert {"SHA256SUMS", "backup.json", "roles.json", "files/ports.json"} <= set(keys)
    assert not any("unfinished" in key or "access-check" in key for key in keys)
    assert backup.server.requests.unfinished_uploads(backup.bucket) == []
    assert not list((backup.installation.data / "backup-uploads").iterdir())
    verified = backup.usher("backup", "verify", backup.url())
    assert (verified.code, "5 of 5" in verified.out) == (0, True), verified.err
    target = tmp_path / "restored"
    ended = backup.usher("backup", "restore", backup.url(), data=target, dsn=empty_database)
    assert ended.code == 0, ended.err
    assert chunk_files(target) == chunk_files(backup.installation.data)
    assert chunk_count(empty_database) == 5
    assert {path.name for path in target.iterdir()}.isdisjoint({"restore-download", "restore"})


def test_the_objects_are_a_backup_in_a_directory(backup: BucketBackup, tmp_path: Path) -> None:
    backup.create()
    for key in backup.stored_keys():
        path = tmp_path / "copy" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(backup.server.requests.get(backup.bucket, f"usher/monday/{key}"))
    assert backup.usher("backup", "verify", str(tmp_path / "copy")).code == 0


def test_prefixes_that_are_no_target(backup: BucketBackup) -> None:
    backup.create()
    again = backup.usher("backup", "create", backup.url())
    assert (again.code, "has a complete backup already" in again.err) == (2, True)
    backup.server.requests.put(backup.bucket, "usher/other/mine", b"x")
    refused = backup.usher("backup", "create", backup.url("other"))
    assert (refused.code, "is not empty" in refused.err) == (2, True)
    state = b'{"data": "/elsewhere", "started": "now"}'
    backup.server.requests.put(backup.bucket, "usher/unfinished/unfinished.json", state)
    refused = backup.usher("backup", "create", backup.url("unfinished"))
    assert (refused.code, "unfinished backup of /elsewhere" in refused.err) == (2, True)
    for prefix, reason in (("unfinished", "is an unfinished"), ("none", "is not a backup")):
        for command in ("verify", "restore"):
            refused = backup.usher("backup", command, backup.url(prefix))
            assert (refused.code, reason in refused.err) == (2, True), refused.err


def test_an_upload_that_was_killed_continues(backup: BucketBackup) -> None:
    for chunk in range(10, 30):
        backup.installation.add_chunk(chunk, built=True)
    backup.proxy.faults = Faults(bytes_per_second=200_000)
    process = backup.start_create()
    assert eventually(lambda: len(backup.uploads()) > 8, WAIT_SECONDS)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    backup.proxy.faults = Faults()
    assert "SHA256SUMS" not in backup.stored_keys()
    stored = {key for key in backup.stored_keys() if key.startswith("files/")}
    assert len(stored) >= 4
    since = len(backup.proxy.requests)
    backup.create()
    repeated = {f"files/{name}" for name in backup.uploads(since)} & stored
    assert len(repeated) <= 4, repeated  # those whose upload ended when the process did
    assert backup.usher("backup", "verify", backup.url()).code == 0


def test_unchanged_files_are_copied_from_the_base(backup: BucketBackup) -> None:
    backup.create()
    backup.installation.add_chunk(5, built=True)
    since = len(backup.proxy.requests)
    backup.create("tuesday", "--base", backup.url())
    names = {key.removeprefix("files/") for key in backup.stored_keys("tuesday") if "chunks" in key}
    copied = [line for line in backup.proxy.requests[since:] if line.startswith("PUT")]
    assert len(names) == len(CHUNKS)
    assert len([line for line in copied if "/files/" in line]) == len(CHUNKS) + 2
    for key in backup.stored_keys():
        backup.server.requests.delete(backup.bucket, f"usher/monday/{key}")
    assert backup.usher("backup", "verify", backup.url("tuesday")).code == 0
    refused = backup.usher("backup", "create", backup.url("x"), "--base", "/backups/monday")
    assert (refused.code, "is not in the bucket" in refused.err) == (2, True)


def test_a_damaged_object_is_named_and_nothing_is_restored(
    backup: BucketBackup, tmp_path: Path
) -> None:
    backup.create()
    key = next(key for key in backup.stored_keys() if key.endswith(".idx"))
    backup.server.requests.put(backup.bucket, f"usher/monday/{key}", b"damaged")
    verified = backup.usher("backup", "verify", backup.url())
    assert (verified.code, f"{backup.url()}/{key} is damaged" in verified.out) == (3, True)
    target = tmp_path / "restored"
    refused = backup.usher("backup", "restore", backup.url(), data=target)
    assert (refused.code, "is damaged" in refused.err) == (1, True), refused.err
    assert "Nothing was changed" in refused.err
    assert chunk_files(target) == {}
    backup.server.requests.delete(backup.bucket, f"usher/monday/{key}")
    assert f"{key} is missing" in backup.usher("backup", "verify", backup.url()).out


def test_a_download_that_was_cut_off_continues(
    backup: BucketBackup, empty_database: str, tmp_path: Path
) -> None:
    add_large_chunk(backup.installation, 5)
    backup.create()
    target = tmp_path / "restored"
    backup.proxy.faults = Faults(bytes_per_second=400_000)
    process = subprocess.Popen(
        [*USHER, "backup", "restore", backup.url()],
        env=clean(backup.environment(data=target, dsn=empty_database)),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    folder = target / "restore-download" / "files"
    assert eventually(lambda: len(list(folder.rglob("*.idx"))) >= 2, WAIT_SECONDS)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    present = {path.name for path in folder.rglob("*.idx")}
    backup.proxy.faults = Faults(path="000000005.idx", cut_download_after=12_000_000)
    since = len(backup.proxy.requests)
    ended = backup.usher("backup", "restore", backup.url(), data=target, dsn=empty_database)
    assert ended.code == 0, ended.err
    again = {line.split()[1].rpartition("/")[2] for line in backup.proxy.requests[since:]}
    assert present.isdisjoint(again)
    assert chunk_files(target) == chunk_files(backup.installation.data)


def test_wrong_credentials_missing_bucket_and_no_server(backup: BucketBackup) -> None:
    wrong = backup.usher("backup", "create", backup.url(), USHER_S3_SECRET_KEY="wrong")
    assert wrong.code == 1, wrong.err
    assert "does not accept the credentials" in wrong.err
    assert "s3_secret_key" in wrong.err
    missing = backup.usher("backup", "create", "s3://no-such-bucket/monday")
    assert (missing.code, "There is no bucket no-such-bucket" in missing.err) == (1, True)
    invalid = backup.usher("backup", "create", "s3://")
    assert (invalid.code, "is not the address of an object store" in invalid.err) == (2, True)
    began = time.monotonic()
    backup.proxy.faults = Faults(refuse=True)
    refused = backup.usher("backup", "create", backup.url())
    assert (refused.code, "cannot be reached" in refused.err) == (5, True), refused.err
    assert time.monotonic() - began < 60
    assert backup.stored_keys() == []


def test_damaged_uploads_are_refused_by_the_server(backup: BucketBackup) -> None:
    name = backup.installation.index.path(1).name
    backup.proxy.faults = Faults(path=name, damage_upload=True)
    refused = backup.usher("backup", "create", backup.url())
    assert refused.code != 0
    assert f"{name}" in refused.err
    assert "To continue it: usher backup create" in refused.err
    assert not any(key.endswith(name) for key in backup.stored_keys())
    backup.proxy.faults = Faults()
    backup.create()
    assert backup.usher("backup", "verify", backup.url()).code == 0


def test_a_file_that_changes_between_two_runs_is_uploaded_again(backup: BucketBackup) -> None:
    for chunk in range(10, 30):
        backup.installation.add_chunk(chunk, built=True)
    backup.proxy.faults = Faults(path="database/", refuse=False, cut_upload_after=0)
    assert backup.usher("backup", "create", backup.url()).code != 0
    backup.proxy.faults = Faults()
    path = backup.installation.index.path(1)
    text = os.urandom(path.stat().st_size)
    path.write_bytes(text)
    with psycopg.connect(backup.installation.dsn) as conn:
        conn.execute(
            "update work.chunk set index_sha256 = %s where id = 1",
            [hashlib.sha256(text).hexdigest()],
        )
    backup.create()
    key = next(key for key in backup.stored_keys() if key.endswith(path.name))
    assert backup.server.requests.get(backup.bucket, f"usher/monday/{key}") == text
    assert backup.usher("backup", "verify", backup.url()).code == 0
