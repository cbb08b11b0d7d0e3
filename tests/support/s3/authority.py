"""An authority of certificates of a test, as companies have one, and certificates of servers that it signed."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

LOOPBACK = "IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A certificate, its key, and the certificate of the authority that signed it, as files."""

    authority: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """An authority whose files are in a directory."""

    directory: Path

    @property
    def file(self) -> Path:
        """Its certificate, for clients."""
        return self.directory / "authority.pem"

    @property
    def key(self) -> Path:
        return self.directory / "authority.key"

    def sign(self, name: str, hosts: str = LOOPBACK, *, days: int = 2) -> ServerCertificate:
        """Create a certificate for these hosts; with negative days it has expired."""
        made = ServerCertificate(
            self.file, self.directory / f"{name}.pem", self.directory / f"{name}.key"
        )
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\nbasicConstraints=CA:FALSE\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                "-keyout", made.key, "-out", request)  # fmt: skip
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-CAcreateserial",
                "-extfile", extensions, "-days", days, "-out", made.certificate)  # fmt: skip
        return made


def make_authority(
    directory: Path, name: str = "Authority of the tests", hosts: str = LOOPBACK
) -> CertificateAuthority:
    """Create an authority, with its own certificate for these hosts; without openssl the test is skipped."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    directory.mkdir(parents=True)
    made = CertificateAuthority(directory)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={hosts}", "-keyout", made.key, "-out", made.file)  # fmt: skip
    return made


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
