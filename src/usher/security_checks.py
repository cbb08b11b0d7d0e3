"""Security checks of `usher doctor`: running as root, public addresses without TLS, files open to other users.

They only warn, because each may be intended.
"""

import ipaddress
import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from usher.private_files import DIRECTORY_MODE, FILE_MODE, ROOT_DATA_MODE
from usher.settings import LoadedSettings, Settings, mask_secret, secret_names

DIRECTORIES: Final = ("logs", "log", "run", "postgres", "index", "built", "content")
FILES: Final = ("local.token", "password", "ports.json")
LISTENING: Final = "0A"  # a socket's state in /proc/net/tcp
PLAIN_HINTS: Final = {
    "mgmt_url": "Put a proxy with TLS in front of MGMT and set an https:// address.",
    "websub_url": "Put a proxy with TLS in front of MGMT and set an https:// address.",
}
PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Check:
    """One result; the hint is the next command to try."""

    name: str
    level: Literal["good", "warning", "bad"]
    detail: str
    hint: str = ""


def security_checks(loaded: LoadedSettings, environment: Mapping[str, str]) -> list[Check]:
    """All checks, with one warning for each address and each file."""
    exposed = [*exposed_addresses(), *plain_addresses(loaded.settings)]
    loose = list(open_files(loaded, environment))
    closed = Check(
        "permissions", "good", "data, logs and secrets are not accessible to other users"
    )
    return [user_check(), *(exposed or [network_check()]), *(loose or [closed])]


def user_check() -> Check:
    if os.geteuid() == 0:
        hint = "Create a user for Usher (useradd --create-home NAME) and run it as that user."
        return Check(
            "user", "warning", "Usher runs as root; a flaw in it exposes the whole machine.", hint
        )
    with suppress(KeyError):
        return Check("user", "good", f"Usher runs as {pwd.getpwuid(os.geteuid()).pw_name}.")
    return Check("user", "good", f"Usher runs as user number {os.geteuid()}.")


def network_check() -> Check:
    if not (PROC / "net" / "tcp").exists():
        return Check("network", "good", "not checked: this system does not list its sockets")
    return Check("network", "good", "no Usher process of this user listens for other machines")


def exposed_addresses() -> Iterator[Check]:
    """A warning for each address at which an Usher process listens for other machines."""
    sockets = public_sockets()
    for pid in usher_processes() if sockets else ():
        for inode in sorted(sockets.keys() & open_sockets(pid)):
            address = sockets[inode]
            yield Check(
                "network",
                "warning",
                f"Process {pid} listens at {address}, which other machines can reach without TLS.",
                "Bind it to 127.0.0.1 behind a proxy with TLS, or use a private network.",
            )


def public_sockets() -> dict[str, str]:
    """Address by inode of every listening TCP socket that is not on loopback."""
    sockets = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / name).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                host, port = local.split(":")
                address = read_address(host)
                if state == LISTENING and not is_loopback(address):
                    text = f"[{address}]" if address.version == 6 else address  # noqa: PLR2004
                    sockets[rest[5]] = f"{text}:{int(port, 16)}"
    return sockets


def read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address of /proc/net: hexadecimal words of four bytes in little-endian order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def usher_processes() -> Iterator[int]:
    """Processes that were started as `usher …` or `python -m usher …`."""
    for entry in PROC.glob("[0-9]*"):
        with suppress(OSError):
            words = [os.fsdecode(word) for word in (entry / "cmdline").read_bytes().split(b"\0")]
            if any(Path(word).name == "usher" for word in words[:3]):
                yield int(entry.name)


def open_sockets(pid: int) -> set[str]:
    """Inodes of a process's sockets; none if the process belongs to another user."""
    inodes = set()
    with suppress(OSError):
        for handle in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(handle.readlink()).partition(":")
                if kind == "socket":
                    inodes.add(inode.strip("[]"))
    return inodes


def plain_addresses(settings: Settings) -> Iterator[Check]:
    """A warning for each setting that names another machine without TLS."""
    for name, hint in PLAIN_HINTS.items():
        url = urlsplit(getattr(settings, name))
        host = url.hostname or ""
        with suppress(ValueError):
            if is_loopback(ipaddress.ip_address(host)):
                continue
        if url.scheme == "http" and host != "localhost":
            yield Check(
                "network",
                "warning",
                f"{name} is http://{host}: tokens and pages are sent unencrypted.",
                hint,
            )


def open_files(loaded: LoadedSettings, environment: Mapping[str, str]) -> Iterator[Check]:
    """A warning for each private directory and file that other users can access."""
    data = loaded.settings.data
    # The account that runs root's PostgreSQL must traverse the data directory.
    yield from permission_warning(data, ROOT_DATA_MODE if os.geteuid() == 0 else DIRECTORY_MODE)
    for name in DIRECTORIES:
        yield from permission_warning(data / name, DIRECTORY_MODE)
    for name in FILES:
        yield from permission_warning(data / name, FILE_MODE)
    for file in sorted(secret_files(loaded, environment)):
        yield from permission_warning(file, FILE_MODE)


def secret_files(loaded: LoadedSettings, environment: Mapping[str, str]) -> set[Path]:
    """The files that contain tokens and passwords of the settings."""
    files = set()
    for name in secret_names():
        value, origin = getattr(loaded.settings, name), loaded.origins[name]
        if mask_secret(name, value) == value:
            continue  # it is empty, or an address without a password
        if origin.endswith("_FILE"):
            files.add(Path(environment[origin]))
        elif loaded.file and origin == str(loaded.file):
            files.add(loaded.file)
    return files


def permission_warning(path: Path, allowed: int) -> Iterator[Check]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:  # missing, or in a directory that this user may not read
        return
    if mode & 0o077 & ~allowed:
        yield Check(
            "permissions",
            "warning",
            f"{path} is accessible to other users of this machine (mode {mode:04o}).",
            f"chmod {allowed:o} {shlex.quote(str(path))}",
        )
