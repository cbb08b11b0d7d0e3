"""The client of object storage with a real S3 server: files in parts, damage, interruptions, and clear errors."""

import asyncio
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.s3.fault_proxy import FaultProxy, Faults
from support.s3.fixtures import skip_without_program
from support.s3.requests import S3Account
from support.s3.server import KIND, OPERATOR, S3Server, running_s3
from usher.errors import BadContent, BadSetting, NotFound, StoreUnusable, Unreachable
from usher.object_store import store as store_module
from usher.object_store.address import StoreAccess, StoreAddress, parse_address, store_access
from usher.object_store.client import install_command
from usher.object_store.store import PART_BYTES, ObjectStore
from usher.settings import Settings

BODY = bytes(range(256)) * (5 * PART_BYTES // 512)  # two and a half parts
SUM = hashlib.sha256(BODY).hexdigest()
NO_PACKAGE = """
import sys
sys.modules["obstore"] = None
from usher.cli.main import main
main()
"""


def access(endpoint: str) -> StoreAccess:
    return StoreAccess(endpoint, "us-east-1", OPERATOR.access_key, OPERATOR.secret_key)


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> ObjectStore:
    return ObjectStore(StoreAddress(bucket, "some/prefix"), access(s3_server.endpoint), patience=2)


@pytest.fixture
def distant(s3_proxy: FaultProxy, bucket: str) -> ObjectStore:
    """The same prefix through the proxy."""
    return ObjectStore(StoreAddress(bucket, "some/prefix"), access(s3_proxy.endpoint), patience=2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(BODY)
    return path


async def test_a_large_file_is_stored_in_parts_and_read_again(
    store: ObjectStore, file: Path, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    stored = await store.put_file("folder/key", file, SUM)
    assert (stored.size, stored.sha256) == (len(BODY), SUM)
    assert s3_server.requests.get(bucket, "some/prefix/folder/key") == BODY
    assert (await store.head("folder/key")).size == len(BODY)
    copy = await store.get_file("folder/key", tmp_path / "copy", SUM, len(BODY))
    assert copy.path.read_bytes() == BODY


async def test_a_file_that_is_not_the_expected_one_is_not_stored(
    store: ObjectStore, file: Path, s3_server: S3Server, bucket: str
) -> None:
    with pytest.raises(BadContent, match="is damaged"):
        await store.put_file("large", file, "0" * 64)
    file.write_bytes(b"small")
    with pytest.raises(BadContent, match="is damaged"):
        await store.put_file("small", file, "0" * 64)
    assert s3_server.requests.keys(bucket) == []


async def test_a_damaged_object_is_refused(
    store: ObjectStore, distant: ObjectStore, file: Path, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    await store.put_file("key", file, SUM)
    s3_proxy.faults = Faults(path="key", damage_download=True)
    with pytest.raises(BadContent, match="its checksum is"):
        await distant.get_file("key", tmp_path / "copy", SUM)
    with pytest.raises(BadContent, match="bytes, not 7"):
        await store.get_file("key", tmp_path / "copy", size=7)
    assert not (tmp_path / "copy").exists()


async def test_an_interrupted_download_continues(
    store: ObjectStore, distant: ObjectStore, file: Path, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    await store.put_file("key", file, SUM)
    s3_proxy.faults = Faults(path="key", cut_download_after=PART_BYTES)
    copy = await distant.get_file("key", tmp_path / "copy", SUM)
    assert copy.path.read_bytes() == BODY


async def test_a_listing_is_sorted_bounded_and_continued(store: ObjectStore) -> None:
    keys = [f"folder/{number:02d}" for number in range(12)]
    for key in [*keys, "folder-of-others/1", "other"]:
        await store.put_bytes(key, b"x")
    first = [item.key for item in await store.list_objects("folder", limit=5)]
    rest = [item.key for item in await store.list_objects("folder", after=first[-1])]
    assert [*first, *rest] == keys
    await store.delete([*keys, "never-existed"])
    assert [item.key for item in await store.list_objects()] == ["folder-of-others/1", "other"]


async def test_missing_objects_and_buckets_differ(store: ObjectStore, s3_server: S3Server) -> None:
    for request in (store.get_bytes("nothing"), store.head("nothing")):
        with pytest.raises(NotFound, match="some/prefix/nothing does not exist"):
            await request
    nowhere = ObjectStore(StoreAddress("no-such-bucket"), access(s3_server.endpoint), patience=1)
    with pytest.raises(StoreUnusable, match="no bucket no-such-bucket"):
        await nowhere.get_bytes("key")
    with pytest.raises(StoreUnusable, match="no bucket no-such-bucket"):
        await nowhere.check()


async def test_wrong_credentials_are_named(bucket: str, s3_server: S3Server) -> None:
    right = access(s3_server.endpoint)
    for wrong in (replace(right, access_key="nothing"), replace(right, secret_key="wrong")):
        with pytest.raises(StoreUnusable, match="does not accept the credentials") as raised:
            await ObjectStore(StoreAddress(bucket), wrong, patience=1).check()
        assert "s3_secret_key" in raised.value.hint
        assert "wrong" not in raised.value.message


@pytest.mark.skipif(KIND != "seaweedfs", reason="the test's MinIO has one account")
async def test_a_refusal_names_the_permission_of_the_request(tmp_path: Path) -> None:
    """An archive needs only s3:PutObject. An account that may not list does not learn that there is no bucket."""
    skip_without_program()
    writer = S3Account("writer", "secret-of-the-writer")
    with running_s3(tmp_path / "s3", {"archive": writer}, ["Write"]) as server:
        for name in ("archive", "other"):
            server.create_bucket(name)
        rights = StoreAccess(server.endpoint, "us-east-1", writer.access_key, writer.secret_key)
        archive, other, nowhere = (
            ObjectStore(StoreAddress(name), rights, patience=1)
            for name in ("archive", "other", "no-such-bucket")
        )
        await archive.put_bytes("key", b"")
        for request, permission in (
            (other.put_bytes("key", b""), "s3:PutObject on s3://other"),
            (nowhere.put_bytes("key", b""), "s3:PutObject on s3://no-such-bucket"),
            (archive.get_bytes("key"), "s3:GetObject or s3:ListBucket on s3://archive"),
            (archive.list_objects(), "s3:ListBucket on s3://archive"),
            (other.delete(["key"]), "s3:DeleteObject on s3://other"),
        ):
            with pytest.raises(StoreUnusable, match="denies access") as raised:
                await request
            lacks = f"The account lacks {permission}, or the bucket does not exist."
            assert raised.value.hint == lacks


async def test_a_server_that_is_away_is_unreachable_within_the_patience(
    distant: ObjectStore, s3_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_proxy.faults = Faults(refuse=True)
    async with asyncio.timeout(15):
        with pytest.raises(Unreachable, match="cannot be reached"):
            await distant.check()
    s3_proxy.faults = Faults(hang=True)
    monkeypatch.setattr(store_module, "CHECK_SECONDS", 0.5)
    with pytest.raises(Unreachable, match=r"does not answer within 0\.5 seconds"):
        await distant.check()
    s3_proxy.faults = Faults()
    monkeypatch.undo()
    await distant.check()


def test_addresses() -> None:
    assert parse_address("s3://bucket/a/b/") == StoreAddress("bucket", "a/b")
    assert str(parse_address("s3://bucket")) == "s3://bucket"
    for wrong in (
        "bucket",
        "s3://",
        "s3://UPPER/x",
        "http://bucket/x",
        "s3://b/x?y",
        "s3://bucket/a//x",
    ):
        with pytest.raises(BadSetting, match="is not the address of an object store"):
            parse_address(wrong)
    with pytest.raises(BadSetting, match="Only one of"):
        store_access(Settings(s3_access_key="key"))


def test_without_the_package_the_error_has_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            NO_PACKAGE,
            "--data",
            str(tmp_path),
            "mgmt",
            "--bind",
            "127.0.0.1:0",
        ],
        env={"USHER_CHUNK_STORE": "s3://bucket", "DATABASE_URL": "postgresql://127.0.0.1:1/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    lock = Path(__file__).parents[2] / "requirements-s3.lock"
    assert f"{sys.executable} -m pip install --require-hashes -r {lock}" in done.stderr
    assert "Traceback" not in done.stderr
    assert install_command(tmp_path) == f"{sys.executable} -m pip install 'usherd[s3]'"
