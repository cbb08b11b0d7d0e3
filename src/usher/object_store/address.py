"""The address of an object store, and how to reach its server."""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from usher.certificates import TrustedAuthorities
from usher.errors import BadSetting
from usher.settings import Settings

BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A bucket, and a prefix without slashes at its ends: `s3://bucket/prefix`."""

    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How to reach the server; what is empty comes from the variables of AWS, such as AWS_REGION."""

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""
    authorities: TrustedAuthorities = field(default_factory=TrustedAuthorities)


def store_access(settings: Settings) -> StoreAccess:
    if bool(settings.s3_access_key) != bool(settings.s3_secret_key):
        raise BadSetting("Only one of s3_access_key and s3_secret_key is set.", hint="Set both.")
    return StoreAccess(
        *(settings.s3_endpoint, settings.s3_region),
        *(settings.s3_access_key, settings.s3_secret_key),
        store_authorities(settings),
    )


def store_authorities(settings: Settings) -> TrustedAuthorities:
    """Return the authorities that the S3 server may use; BadSetting if the file has no certificate."""
    authorities = TrustedAuthorities(settings.s3_ca)
    authorities.check()
    return authorities


def is_store_url(text: str) -> bool:
    return text.startswith("s3://")


def parse_address(url: str) -> StoreAddress:
    """Parse `s3://bucket/prefix`; BadSetting if it is something else."""
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    is_clean = not (parts.query or parts.fragment or "//" in prefix)
    if parts.scheme != "s3" or not BUCKET_NAME.fullmatch(parts.netloc) or not is_clean:
        raise BadSetting(
            f"{url!r} is not the address of an object store.", hint="s3://BUCKET/PREFIX"
        )
    return StoreAddress(parts.netloc, prefix)
