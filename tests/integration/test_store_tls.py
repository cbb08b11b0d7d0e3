"""An S3 server behind TLS with the authority of a company: which certificates are refused, and what the errors say."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.processes.commands import usher
from support.s3.authority import (
    CertificateAuthority,
    ServerCertificate,
    make_authority,
)
from support.s3.fault_proxy import FaultProxy, Faults, fault_proxy
from support.s3.server import OPERATOR, S3Server
from usher.certificates import SYSTEM_AUTHORITIES, TrustedAuthorities
from usher.chunk_store import StoredFile
from usher.errors import BadSetting, StoreUnusable, Unreachable
from usher.http.client.object_transfer import download_object, upload_object
from usher.object_store.address import StoreAddress, store_access
from usher.object_store.store import PART_BYTES, ObjectStore
from usher.settings import Settings

pytestmark = pytest.mark.soak
BODY = bytes(range(256)) * (5 * PART_BYTES // 512)  # two and a half parts
KEY = "index/000000/000000007.idx"
# A certificate that is refused: its hosts, its days, what both clients say, and what the hint says.
REFUSED = {
    "expired": ("IP:127.0.0.1", -1, "has expired", "Renew the certificate of the server"),
    "other": (
        "DNS:s3.example.org",
        2,
        "is for another (name|address)",
        "Set s3_endpoint to a name",
    ),
}


@pytest.fixture
def file(tmp_path: Path) -> StoredFile:
    path = tmp_path / "chunk"
    path.write_bytes(BODY)
    return StoredFile(path, hashlib.sha256(BODY).hexdigest(), len(BODY))


def settings_for(endpoint: str, ca_file: Path | str = "") -> Settings:
    return Settings(
        s3_endpoint=endpoint,
        s3_access_key=OPERATOR.access_key,
        s3_secret_key=OPERATOR.secret_key,
        s3_ca=str(ca_file),
    )


def store_at(endpoint: str, ca_file: Path | str = "", bucket: str = "chunks") -> ObjectStore:
    access = store_access(settings_for(endpoint, ca_file))
    return ObjectStore(StoreAddress(bucket), access, patience=1)


@contextmanager
def behind_tls(
    server: S3Server, authority: CertificateAuthority, name: str, hosts: str, days: int = 2
) -> Iterator[FaultProxy]:
    """A proxy in front of the server that has a certificate of its own."""
    with fault_proxy(server.port, authority.sign(name, hosts, days=days)) as proxy:
        yield proxy


async def test_files_and_chunks_pass_with_the_authority(
    tls_s3_server: S3Server, authority: CertificateAuthority, file: StoredFile, tmp_path: Path
) -> None:
    store = store_at(tls_s3_server.endpoint, authority.file)
    await store.check()
    await store.put_file("backup/large", file.path, file.sha256)
    copy = await store.get_file("backup/large", tmp_path / "copy", file.sha256, file.size)
    assert copy.path.read_bytes() == BODY
    trusted = TrustedAuthorities(str(authority.file))
    [put] = await store.presign("PUT", [KEY], seconds=60)
    await upload_object(put, 7, "index", file, authorities=trusted)
    assert tls_s3_server.requests.get("chunks", KEY) == BODY
    [get] = await store.presign("GET", [KEY], seconds=60)
    downloaded = await download_object(
        *(get, 7, "index", tmp_path / "chunk-copy", file.sha256),
        size=file.size,
        authorities=trusted,
    )
    assert downloaded.path.read_bytes() == BODY
    assert trusted.context is trusted.context  # made once


async def test_an_interrupted_download_resumes_with_tls(
    s3_server: S3Server,
    bucket: str,
    authority: CertificateAuthority,
    file: StoredFile,
    tmp_path: Path,
) -> None:
    with behind_tls(s3_server, authority, "resumed", "IP:127.0.0.1") as proxy:
        store = store_at(proxy.endpoint, authority.file, bucket)
        trusted = TrustedAuthorities(str(authority.file))
        await store.put_file(KEY, file.path)
        [get] = await store.presign("GET", [KEY], seconds=60)
        proxy.faults = Faults(path=KEY, cut_download_after=PART_BYTES)
        to = tmp_path / "copy"
        await download_object(get, 7, "index", to, file.sha256, authorities=trusted)
    assert to.read_bytes() == BODY


@pytest.mark.parametrize("name", REFUSED)
async def test_a_certificate_that_is_not_valid_is_named(
    s3_server: S3Server, authority: CertificateAuthority, file: StoredFile, name: str
) -> None:
    hosts, days, words, hint = REFUSED[name]
    kind = Unreachable if name == "expired" else StoreUnusable  # so that MGMT starts meanwhile
    with behind_tls(s3_server, authority, name, hosts, days) as proxy:
        store = store_at(proxy.endpoint, authority.file)
        with pytest.raises(kind, match=f"the certificate of {proxy.endpoint} {words}") as raised:
            await store.check()
        assert hint in raised.value.hint
        [put] = await store.presign("PUT", [KEY], seconds=60)
        trusted = TrustedAuthorities(str(authority.file))
        with pytest.raises(
            StoreUnusable, match=f"chunk 7 .*certificate {words}.*{hint}"
        ) as refused:
            await upload_object(put, 7, "index", file, authorities=trusted)
        assert "Signature" not in refused.value.message


async def test_an_unknown_authority_is_named(
    tls_s3_server: S3Server, file: StoredFile, tmp_path: Path
) -> None:
    other = make_authority(tmp_path / "other", "Another authority").file
    wrong_file = f"{other} (s3_ca, USHER_S3_CA) lacks its authority"
    [put] = await store_at(tls_s3_server.endpoint).presign("PUT", [KEY], seconds=60)
    [get] = await store_at(tls_s3_server.endpoint).presign("GET", [KEY], seconds=60)
    for trusted, hint in (
        (SYSTEM_AUTHORITIES, "Name the file with the certificate of its authority: s3_ca"),
        (TrustedAuthorities(str(other)), wrong_file),
    ):
        with pytest.raises(StoreUnusable, match=r"certificate .* has an unknown issuer") as raised:
            await store_at(tls_s3_server.endpoint, trusted.ca_file).check()
        assert hint in raised.value.hint
        with pytest.raises(StoreUnusable, match="the certificate ") as uploaded:
            await upload_object(put, 7, "index", file, authorities=trusted)
        assert hint in uploaded.value.message
        with pytest.raises(StoreUnusable, match="the certificate ") as downloaded:
            await download_object(get, 7, "index", tmp_path / "copy", None, authorities=trusted)
        assert hint in downloaded.value.message


async def test_the_authorities_of_the_system_count_too(
    s3_server: S3Server,
    bucket: str,
    authority: CertificateAuthority,
    file: StoredFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both clients have the same rule: the file adds an authority to those of the system."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    other = make_authority(tmp_path / "other").file
    with behind_tls(s3_server, authority, "system", "IP:127.0.0.1") as proxy:
        for ca_file in ("", str(other)):
            store = store_at(proxy.endpoint, ca_file, bucket)
            await store.check()
            [put] = await store.presign("PUT", [KEY], seconds=60)
            trusted = TrustedAuthorities(ca_file)
            await upload_object(put, 7, "index", file, authorities=trusted)


async def test_an_authority_is_no_certificate_of_a_server(
    s3_server: S3Server, tmp_path: Path
) -> None:
    """OpenSSL accepts that, and obstore does not: the error says what to do."""
    own = make_authority(tmp_path / "own")
    certificate = ServerCertificate(own.file, own.file, own.key)
    with fault_proxy(s3_server.port, certificate) as proxy:
        store = store_at(proxy.endpoint, own.file)
        with pytest.raises(StoreUnusable, match="that of an authority, not of a server") as raised:
            await store.check()
    assert "basicConstraints=CA:FALSE" in raised.value.hint


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"not a certificate", "it has no certificate")]
)
def test_a_file_without_a_certificate_ends_each_process_at_its_start(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadSetting, match=reason) as raised:
        store_at("https://127.0.0.1:1", file)
    assert "Correct s3_ca (USHER_S3_CA)" in raised.value.hint
    environment = {"USHER_S3_CA": str(file), "USHER_DATA": str(tmp_path / "data")}
    environment["DATABASE_URL"] = "postgresql://127.0.0.1:1/none"
    for role in ("crawler", "builder", "index-server"):
        words = (role, "--bind", "127.0.0.1:0", "--mgmt", "http://127.0.0.1:1")
        ended = usher(*words, environment=environment, cwd=tmp_path)
        assert ended.code == 2, ended.err
        assert f"{file} cannot be used as a file of certificates: {reason}" in ended.err
        assert "Traceback" not in ended.err


@pytest.mark.parametrize("setting", ["", "s3_ca"])
def test_doctor_names_the_setting(
    tls_s3_server: S3Server, authority: CertificateAuthority, tmp_path: Path, setting: str
) -> None:
    environment: dict[str, Any] = {
        "DATABASE_URL": "postgresql://127.0.0.1:1/none",
        "USHER_DATA": str(tmp_path),
        "USHER_CHUNK_STORE": "s3://chunks/usher",
        "USHER_S3_ENDPOINT": tls_s3_server.endpoint,
        "USHER_S3_ACCESS_KEY": OPERATOR.access_key,
        "USHER_S3_SECRET_KEY": OPERATOR.secret_key,
        "USHER_S3_CA": str(authority.file) if setting else "",
    }
    ended = usher("doctor", environment=environment, cwd=tmp_path)
    told = " ".join((ended.out + ended.err).split())
    if setting:
        assert "s3://chunks/usher can be written, read and listed" in told
    else:
        assert f"the certificate of {tls_s3_server.endpoint} has an unknown issuer" in told
        assert "s3_ca, USHER_S3_CA" in told
