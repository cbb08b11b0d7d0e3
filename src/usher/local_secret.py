"""The secret of a data directory: proof that a caller on this machine may read the operator's files.

MGMT creates `local.token` (mode 0600) when it starts. A caller that shows the secret has all rights at MGMT. Our own
components show a value that is derived from the secret and permits only the work of a component. So a program that
listens at MGMT's port in its place learns nothing that permits more.
"""

import contextlib
import hmac
import os
import secrets
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from usher import private_files
from usher.errors import DataUnusable

FILE_NAME: Final = "local.token"
COMPONENT_PREFIX: Final = "local-component-"
SECRET_BYTES: Final = 32
MAX_FILE_BYTES: Final = 200


def read(data: Path) -> str:
    """The secret of this data directory; empty if there is none or this user may not read it."""
    try:
        handle = os.open(data / FILE_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(handle, encoding="ascii", errors="replace") as file:
        if not _is_private(os.fstat(handle)):
            raise DataUnusable(
                f"{data / FILE_NAME} can be read or changed by other users.",
                hint="Delete it and restart MGMT, which creates a new one.",
            )
        return file.read(MAX_FILE_BYTES).strip()


def create(data: Path) -> str:
    """The secret of this data directory, created if there is none; DataUnusable if it cannot be written."""
    if secret := read(data):
        return secret
    part = data / f"{FILE_NAME}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        private_files.make_data_directory(data)
        handle = private_files.open_file(part, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(SECRET_BYTES) + "\n")
        # The link fails if another process was first; then its secret is the valid one.
        with contextlib.suppress(FileExistsError):
            os.link(part, data / FILE_NAME)
    except OSError as error:
        raise DataUnusable(
            f"{data / FILE_NAME} cannot be created: {error.strerror}.",
            hint="Choose another directory with --data or USHER_DATA.",
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return read(data)


def component_secret(secret: str) -> str:
    """The value that our own components on this machine show instead of the secret."""
    digest = hmac.digest(secret.encode(), b"component of this machine", sha256)
    return f"{COMPONENT_PREFIX}{digest.hex()}"


def component_credential(token: str, data: Path, mgmt_url: str) -> str:
    """What a component shows to MGMT: its token, or on the same machine a value derived from the secret."""
    if token or not _is_loopback(mgmt_url):
        return token
    secret = read(data)
    return component_secret(secret) if secret else ""


def _is_private(status: os.stat_result) -> bool:
    owners = {0, os.geteuid()}
    return not status.st_mode & private_files.OWNER_ONLY_UMASK and status.st_uid in owners


def _is_loopback(mgmt_url: str) -> bool:
    host = urlsplit(mgmt_url if "://" in mgmt_url else f"http://{mgmt_url}").hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
