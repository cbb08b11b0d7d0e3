"""An S3 server for all tests of a process, a bucket for each test, and a proxy that injects faults."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.s3.authority import CertificateAuthority, make_authority
from support.s3.fault_proxy import FaultProxy, fault_proxy
from support.s3.server import KIND, PROGRAMS, S3Server, running_s3


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that tests share; do not kill it."""
    skip_without_program()
    with running_s3(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """An authority that no system trusts."""
    return make_authority(tmp_path_factory.mktemp("authority") / "files")


@pytest.fixture(scope="session")
def tls_s3_server(
    tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority
) -> Iterator[S3Server]:
    """A server with TLS and the bucket `chunks` that tests share; do not kill it."""
    skip_without_program()
    directory = tmp_path_factory.mktemp("tls-s3") / "server"
    with running_s3(directory, certificate=authority.sign("s3")) as server:
        server.create_bucket("chunks")
        yield server


@pytest.fixture
def own_s3_server(tmp_path: Path) -> Iterator[S3Server]:
    """A server that the test may kill, freeze and restart."""
    skip_without_program()
    with running_s3(tmp_path / "own-s3") as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """The name of a new bucket on the shared server."""
    name = f"test-{secrets.token_hex(6)}"
    s3_server.create_bucket(name)
    return name


@pytest.fixture
def s3_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of the shared server."""
    with fault_proxy(s3_server.port) as proxy:
        yield proxy


def skip_without_program() -> None:
    if not PROGRAMS[KIND].exists():
        pytest.skip(f"{KIND} is not installed: scripts/s3-server {KIND}")
