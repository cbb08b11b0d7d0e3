"""Where the tests of backups write them: directories and buckets, and what is stored there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.s3.server import S3Server


@dataclass(frozen=True, slots=True)
class BackupDirectory:
    """Backups in a directory."""

    directory: Path
    max_repeated: int = 0  # files that are copied again after a kill

    def address(self, name: str) -> str:
        return str(self.directory / name)

    def stored(self, name: str) -> dict[str, Any]:
        """The inode of each chunk file."""
        suffixes = ("*.idx", "*.warc.gz")
        folder = self.directory / name / "files"
        paths = [path for suffix in suffixes for path in folder.glob(f"**/{suffix}")]
        return {str(path): path.stat().st_ino for path in paths}

    def is_complete(self, name: str) -> bool:
        return (self.directory / name / "SHA256SUMS").exists()


@dataclass(frozen=True, slots=True)
class BackupBucket:
    """Backups in a bucket."""

    server: S3Server
    bucket: str
    max_repeated: int = 4  # the server may have them although the killed process got no answer

    def address(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"

    def stored(self, name: str) -> dict[str, Any]:
        """The time of each chunk file."""
        query = {"list-type": "2", "prefix": f"{name}/files/"}
        answer = self.server.requests.send("GET", f"/{self.bucket}", query=query)
        times = zip(answer.values("Key"), answer.values("LastModified"), strict=True)
        return {key: time for key, time in times if key.endswith((".idx", ".gz"))}

    def is_complete(self, name: str) -> bool:
        return bool(self.server.requests.keys(self.bucket, f"{name}/SHA256SUMS"))


BackupPlace = BackupDirectory | BackupBucket
