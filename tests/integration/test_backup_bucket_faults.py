"""Backups while the S3 server is killed, frozen or damages what it sends: clear errors, and the next run continues."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.db.installation import Installation, chunk_files
from support.processes.commands import Ran, clean, usher
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.s3.fault_proxy import FaultProxy, Faults, fault_proxy
from support.s3.server import OPERATOR, S3Server

pytestmark = pytest.mark.soak
CHUNK_COUNT = 40
WAIT_SECONDS = 60
FROZEN_SECONDS = 15
URL = "s3://backups/usher/monday"


@dataclass(frozen=True, slots=True)
class FaultyBackup:
    """An installation with many chunks, and the commands that back it up over a slow connection."""

    installation: Installation
    server: S3Server
    proxy: FaultProxy

    def environment(self, data: Path | None = None, dsn: str = "") -> dict[str, str]:
        return {
            "DATABASE_URL": dsn or self.installation.dsn,
            "USHER_DATA": str(data or self.installation.data),
            "USHER_S3_ENDPOINT": self.proxy.endpoint,
            "USHER_S3_ACCESS_KEY": OPERATOR.access_key,
            "USHER_S3_SECRET_KEY": OPERATOR.secret_key,
        }

    def run(self, *words: str, data: Path | None = None, dsn: str = "") -> Ran:
        directory = self.installation.data.parent
        return usher("backup", *words, URL, environment=self.environment(data, dsn), cwd=directory)

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*USHER, "backup", "create", URL],
            env=clean(self.environment()),
            cwd=self.installation.data.parent,
            stderr=subprocess.PIPE,
            text=True,
        )

    def uploaded(self, since: int = 0) -> set[str]:
        lines = [line for line in self.proxy.requests[since:] if line.startswith("PUT")]
        return {line.split()[1].rpartition("/")[2] for line in lines if ".idx" in line}

    def stored(self) -> set[str]:
        return {
            key.rpartition("/")[2] for key in self.server.requests.keys("backups") if ".idx" in key
        }


@pytest.fixture
def faulty(installation: Installation, own_s3_server: S3Server) -> Iterator[FaultyBackup]:
    own_s3_server.create_bucket("backups")
    for chunk in range(10, 10 + CHUNK_COUNT):
        installation.add_chunk(chunk, built=True)
    with fault_proxy(own_s3_server.port) as proxy:
        yield FaultyBackup(installation, own_s3_server, proxy)


def test_a_server_that_is_killed_during_the_upload(faulty: FaultyBackup) -> None:
    faulty.proxy.faults = Faults(bytes_per_second=200_000)
    process = faulty.start()
    assert eventually(lambda: len(faulty.uploaded()) > 10, WAIT_SECONDS)
    faulty.server.kill()
    error = process.communicate(timeout=WAIT_SECONDS)[1]
    assert process.returncode == 5, error
    assert "cannot be reached" in error
    assert f"To continue it: usher backup create {URL}" in error
    faulty.server.start()
    faulty.proxy.faults = Faults()
    stored, since = faulty.stored(), len(faulty.proxy.requests)
    assert len(stored) >= 6
    ended = faulty.run("create")
    assert ended.code == 0, ended.err
    # Up to four uploads were in progress: the server may have them although its answer was lost.
    assert len(faulty.uploaded(since) & stored) <= 4
    assert faulty.run("verify").code == 0


def test_a_server_that_is_frozen_for_a_while(faulty: FaultyBackup) -> None:
    faulty.proxy.faults = Faults(bytes_per_second=200_000)
    process = faulty.start()
    assert eventually(lambda: len(faulty.uploaded()) > 5, WAIT_SECONDS)
    faulty.server.freeze()
    time.sleep(FROZEN_SECONDS)
    assert process.poll() is None
    faulty.server.thaw()
    error = process.communicate(timeout=2 * WAIT_SECONDS)[1]
    assert process.returncode == 0, error
    assert faulty.run("verify").code == 0


def test_a_server_that_is_away_for_a_moment(faulty: FaultyBackup) -> None:
    """Requests are retried, so a restart of the server needs no second run."""
    faulty.proxy.faults = Faults(bytes_per_second=400_000)
    process = faulty.start()
    assert eventually(lambda: len(faulty.uploaded()) > 5, WAIT_SECONDS)
    faulty.server.restart()
    error = process.communicate(timeout=2 * WAIT_SECONDS)[1]
    assert process.returncode == 0, error
    assert faulty.run("verify").code == 0


def test_answers_that_are_damaged_on_the_way(
    faulty: FaultyBackup, empty_database: str, tmp_path: Path
) -> None:
    assert faulty.run("create").code == 0
    target, name = tmp_path / "restored", "000000012.idx"
    faulty.proxy.faults = Faults(path=name, damage_download=True)
    refused = faulty.run("restore", data=target, dsn=empty_database)
    assert (refused.code, f"{name} is damaged" in refused.err) == (1, True), refused.err
    assert "Run it again" in refused.err
    assert chunk_files(target) == {}
    faulty.proxy.faults = Faults(path=".idx", cut_download_after=50_000)
    cut = faulty.run("restore", data=target, dsn=empty_database)
    assert cut.code == 0, cut.err  # each attempt continues where the one before was cut off
    assert chunk_files(target) == chunk_files(faulty.installation.data)


def test_a_bucket_that_hangs_gives_up(faulty: FaultyBackup) -> None:
    faulty.proxy.faults = Faults(refuse=True)
    began = time.monotonic()
    ended = faulty.run("verify")
    assert (ended.code, "cannot be reached" in ended.err) == (5, True), ended.err
    assert time.monotonic() - began < WAIT_SECONDS
