"""Crawls that keep their WARC files in an archive: a directory or a bucket that is away, kills, and wrong settings."""

import gzip
import hashlib
import io
import json
import os
import signal
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.processes.commands import Ran, usher
from support.processes.killable import eventually
from support.processes.terminal import show
from support.s3.authority import CertificateAuthority
from support.s3.fault_proxy import FaultProxy, Faults
from support.s3.requests import S3Account
from support.s3.server import KIND, OPERATOR, S3Server, needs_s3, running_s3
from support.site.hostile import links, page
from support.site.website import Website
from usher.chunk_store import StoredFile
from usher.crawl.warc.archive import checked_archive
from usher.errors import DiskUnusable
from usher.settings import Settings

warcio: Any = import_module("warcio.archiveiterator")  # it has no types
PAGES = 30
WAIT_SECONDS = 120
ARCHIVE = "archive/warc"


def site() -> Website:
    web = Website()
    paths = [f"/{number or ''}" for number in range(PAGES)]
    for path in paths:
        web.add(path, page(f"Page {path}", f"<p>velvet{path[1:]}x</p>{links(*paths)}"))
    return web


def write_config(
    directory: Path,
    endpoint: str,
    account: S3Account = OPERATOR,
    chunk_store: str = "",
    **more: str,
) -> Path:
    settings = {
        "chunk_store": chunk_store,
        "s3_endpoint": endpoint,
        "s3_access_key": account.access_key,
        "s3_secret_key": account.secret_key,
        "allow_private": "127.0.0.1",
        **more,
    }
    file = directory / "usher.toml"
    file.write_text("".join(f"{name} = {json.dumps(text)}\n" for name, text in settings.items()))
    file.chmod(0o600)
    return file


def archived_urls(files: Iterable[bytes]) -> list[str]:
    """The URLs of the pages in the WARC files."""
    return sorted(
        record.rec_headers.get_header("WARC-Target-URI")
        for file in files
        for record in warcio.ArchiveIterator(io.BytesIO(file))
        if record.rec_type == "response"
        and not record.rec_headers.get_header("WARC-Target-URI").endswith("robots.txt")
    )


def crawl_words(web: Website, config: Path, archive: str, then: str = "end") -> tuple[str, ...]:
    words = ("crawl", "--delay", "0", "--then", then, "--keep-warc", archive, web.url("/"))
    return ("--config", str(config), *words)


def in_bucket(server: S3Server, bucket: str) -> list[bytes]:
    keys = [key for key in server.requests.keys(bucket, ARCHIVE) if key.endswith(".warc.gz")]
    return [server.requests.get(bucket, key) for key in keys]


def pages(web: Website) -> list[str]:
    return sorted(web.url(f"/{number or ''}") for number in range(PAGES))


@pytest.mark.soak
@pytest.mark.parametrize("prefix", ["", "chunks"])
def test_a_crawl_keeps_its_files_in_a_directory(
    data: Path, tmp_path: Path, s3_server: S3Server, bucket: str, prefix: str
) -> None:
    """With chunk files on the disk, and with a chunk store, which gets the files too."""
    archive = data.with_name("archive")
    chunk_store = f"s3://{bucket}/{prefix}" if prefix else ""
    config = write_config(tmp_path, s3_server.endpoint, chunk_store=chunk_store)
    with site() as web:
        with show(data, *crawl_words(web, config, str(archive), "serve")) as stack:
            stack.is_up()
            expected = pages(web)
            done = eventually(
                lambda: archived_urls(map(Path.read_bytes, archive.rglob("*.gz"))) == expected,
                WAIT_SECONDS,
            )
            assert done, stack.logs
            # Every row has the chunks, so the crawler deletes its own files; the archive stays.
            content = data / "content"
            assert eventually(lambda: not list(content.rglob("*.gz")), WAIT_SECONDS), stack.logs
            stack.ctrl_c()
            assert stack.ends() == 0
        assert archived_urls(map(Path.read_bytes, archive.rglob("*.gz"))) == expected
        assert all(gzip.decompress(file.read_bytes()) for file in archive.rglob("*.gz"))


@pytest.mark.soak
def test_chunks_archive_and_backup_are_behind_tls(
    data: Path, tmp_path: Path, tls_s3_server: S3Server, authority: CertificateAuthority
) -> None:
    """Every process that connects to the store trusts the authority of the setting; pages are fetched as before."""
    config = write_config(
        *(tmp_path, tls_s3_server.endpoint),
        chunk_store="s3://chunks/all",
        s3_ca=str(authority.file),
    )
    keys = partial(tls_s3_server.requests.keys, "chunks")
    with site() as web:
        words = crawl_words(web, config, f"s3://chunks/{ARCHIVE}", "serve")
        with show(data, *words) as stack:
            stack.is_up()
            assert stack.ask("velvet7x")["total"] == 1
            expected = pages(web)
            stored = eventually(
                lambda: (
                    archived_urls(in_bucket(tls_s3_server, "chunks")) == expected
                    and bool(keys("all/index"))
                    and not keys("all/content")  # the watchdog deletes what every row has
                ),
                WAIT_SECONDS,
            )
            assert stored, stack.logs
            ended = usher(
                *("--config", str(config), "--data", str(data)),
                *("backup", "create", "s3://chunks/backup"),
                cwd=tmp_path,
            )
            assert ended.code == 0, ended.err
            stack.ctrl_c()
            assert stack.ends() == 0
    assert "backup/SHA256SUMS" in keys("backup")


@pytest.mark.soak
def test_files_wait_for_a_bucket_that_is_away_also_after_a_kill(
    data: Path, tmp_path: Path, s3_server: S3Server, s3_proxy: FaultProxy, bucket: str
) -> None:
    config = write_config(tmp_path, s3_proxy.endpoint)
    archive = f"s3://{bucket}/{ARCHIVE}"
    with site() as web:
        words = crawl_words(web, config, archive, "serve")
        with show(data, *words) as stack:
            assert eventually(lambda: f"/{bucket}/{ARCHIVE}/README" in str(s3_proxy.requests), 60)
            s3_proxy.faults = Faults(refuse=True)
            stack.is_up()
            assert stack.ask("velvet7x")["total"] == 1
            present = in_bucket(s3_server, bucket)
            assert archived_urls(present) != pages(web)
            os.killpg(stack.process.pid, signal.SIGKILL)
            stack.ends()
        fetched = len(web.log)
        s3_proxy.faults = Faults()
        again = ("--config", str(config), "up", "--keep-warc", archive)
        with show(data, *again) as stack:
            stack.is_up()
            expected = pages(web)
            done = eventually(
                lambda: sorted(set(archived_urls(in_bucket(s3_server, bucket)))) == expected,
                WAIT_SECONDS,
            )
            assert done, stack.logs
            stack.ctrl_c()
            assert stack.ends() == 0
        assert len([request for request in web.log[fetched:] if "robots" not in request.path]) == 0


async def test_a_directory_whose_disk_is_not_mounted_gets_nothing(tmp_path: Path) -> None:
    archive, path = tmp_path / "archive", tmp_path / "chunk.warc.gz"
    path.write_bytes(b"pages")
    file = StoredFile(path, hashlib.sha256(b"pages").hexdigest(), 5)
    kept = await checked_archive(archive, Settings())
    await kept.add("crawler/000000/1.warc.gz", file)
    archive.rename(tmp_path / "elsewhere")
    archive.mkdir()  # where it was mounted
    with pytest.raises(DiskUnusable, match="has no README"):
        await kept.add("crawler/000000/2.warc.gz", file)
    assert list(archive.iterdir()) == []
    assert (tmp_path / "elsewhere" / "crawler/000000/1.warc.gz").samefile(path)


def crawler(config: Path, archive: str, tmp_path: Path) -> Ran:
    words = ("--config", str(config), "--data", str(tmp_path / "data"))
    return usher(*words, "crawl", "--keep-warc", archive, "http://127.0.0.1:9/", cwd=tmp_path)


def test_wrong_archives_are_refused_before_anything_starts(
    tmp_path: Path, s3_server: S3Server, bucket: str
) -> None:
    archive = f"s3://{bucket}/{ARCHIVE}"
    wrong = write_config(tmp_path, s3_server.endpoint, S3Account("operator", "wrong"))
    refused = crawler(wrong, archive, tmp_path)
    assert (refused.code, "does not accept the credentials" in refused.err) == (1, True)
    config = write_config(tmp_path, s3_server.endpoint)
    refused = crawler(config, "s3://no-such-bucket/warc", tmp_path)
    assert (refused.code, "There is no bucket no-such-bucket" in refused.err) == (1, True)
    refused = crawler(config, "https://example.org/", tmp_path)
    assert (refused.code, "s3://BUCKET/PREFIX" in refused.err) == (2, True), refused.err
    (tmp_path / "file").touch()
    refused = crawler(config, str(tmp_path / "file" / "archive"), tmp_path)
    assert (refused.code, "cannot be written" in refused.err) == (1, True), refused.err
    assert not (tmp_path / "data").exists()


@pytest.mark.soak
@needs_s3
@pytest.mark.skipif(KIND != "seaweedfs", reason="accounts are in the configuration of SeaweedFS")
def test_the_archive_needs_only_the_permission_to_write(data: Path, tmp_path: Path) -> None:
    writer = S3Account("writer", "secret-of-the-writer")
    with running_s3(tmp_path / "s3", {"archive": writer}, ("Write",)) as server, site() as web:
        server.create_bucket("archive")
        config = write_config(tmp_path, server.endpoint, writer)
        archive = "s3://archive/archive/warc"
        with show(data, *crawl_words(web, config, archive)) as stack:
            assert stack.ends(WAIT_SECONDS) == 0, stack.logs
        assert archived_urls(in_bucket(server, "archive")) == pages(web)
