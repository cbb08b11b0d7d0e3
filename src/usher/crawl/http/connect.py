"""Dialling: from a name and a port to a line, past the guard, with TLS where the scheme wants it.

Comes from `lines`; goes to the first address that the guard lets pass and that answers. The address that was judged
is the one that is dialled, so a name that changes its mind gains nothing.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import certifi

from usher.addresses import Address, parse_address
from usher.crawl.http import address_guard
from usher.crawl.http.connection import FetchLimits, HttpConnection
from usher.crawl.http.dns import DnsResolver
from usher.crawl.http.response import FetchFailure
from usher.crawl.own_endpoints import OwnEndpoint, same_machine
from usher.errors import BadInput
from usher.private_hosts import PrivateAllowList, PrivateHostPermission

# What is wrong with a certificate, by OpenSSL's numbers.
_CERTIFICATE: Final = {
    9: "is not valid yet",
    10: "has expired",
    18: "is signed by itself",
    19: "is signed by somebody unknown",
    20: "is signed by somebody unknown",
    21: "comes without its chain",
    23: "was revoked",
    62: "is for another name",
    64: "is for another address",
}


class Connector:
    """How lines are made; `ca` is a file of certificates to trust instead of the system's."""

    def __init__(
        self,
        names: DnsResolver,
        limits: FetchLimits,
        allowed: PrivateAllowList,
        own: Iterable[OwnEndpoint],
        ca: Path | None,
    ) -> None:
        self._names, self._limits, self._allowed = names, limits, allowed
        self._own = tuple(own)
        if ca is not None:  # a wrong file is told at once
            self._tls = _trusting(ca)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """As the system trusts; made when first wanted, for it takes a while to read them all."""
        return _trusting(None)

    async def line(
        self,
        host: str,
        port: int,
        gone: Callable[[HttpConnection], None],
        *,
        tls: bool,
        permission: PrivateHostPermission | None = None,
    ) -> HttpConnection:
        """A new line; the addresses of the name are tried in turn and share the time."""
        addresses = self._let_pass(host, port, await self._addresses(host), permission)
        addresses = await self._without_own(addresses, port)
        clock = asyncio.get_running_loop().time
        until = clock() + self._limits.connect
        trouble = self._late()
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            make = partial(HttpConnection, address, self._limits, gone)
            try:
                async with asyncio.timeout((until - clock()) / left):
                    return await self._connect(make, address, port, host if tls else None)
            except TimeoutError:
                trouble = self._late()
            except FetchFailure as found:
                trouble = found
                if found.kind == "tls":
                    break
        raise trouble

    async def _addresses(self, host: str) -> tuple[str, ...]:
        try:
            return (str(ip_address(host)),)
        except ValueError:
            return await self._names.find(host, self._limits.lookup)

    def _let_pass(
        self,
        host: str,
        port: int,
        addresses: tuple[str, ...],
        permission: PrivateHostPermission | None,
    ) -> list[str]:
        reasons = [
            address_guard.refusal_reason(self._allowed, host, address, port, permission)
            for address in addresses
        ]
        passed = [one for one, reason in zip(addresses, reasons, strict=True) if not reason]
        if not passed:
            if reasons[0].startswith("port"):
                raise FetchFailure("port", reasons[0])
            raise FetchFailure(
                "private", f"{reasons[0]}; {address_guard.permission_command(host, port)}"
            )
        return passed

    async def _without_own(self, addresses: list[str], port: int) -> list[str]:
        """Leave out addresses where Usher itself listens at this port; Trouble if none is left."""
        own = [address for one in self._own if one.port == port for address in await self._at(one)]
        others = [
            text
            for text in addresses
            if not any(same_machine(parse_address(text), address) for address in own)
        ]
        if not others:
            raise FetchFailure("own", f"Usher itself listens at {addresses[0]} port {port}")
        return others

    async def _at(self, endpoint: OwnEndpoint) -> list[Address]:
        try:
            return [parse_address(text) for text in await self._addresses(endpoint.host)]
        except FetchFailure:  # a name without an address hides nothing
            return []

    async def _connect(
        self, make: Callable[[], HttpConnection], address: str, port: int, secret_for: str | None
    ) -> HttpConnection:
        context = self._tls if secret_for else None
        connect = asyncio.get_running_loop().create_connection
        try:
            _, line = await connect(make, address, port, ssl=context, server_hostname=secret_for)
        except TimeoutError:
            raise
        except ssl.SSLError as error:
            raise FetchFailure("tls", _tls_words(error)) from error
        except ConnectionRefusedError as error:
            raise FetchFailure("refused", "the connection was refused") from error
        except OSError as error:
            raise _lost(error, secret_for) from error
        return line

    def _late(self) -> FetchFailure:
        return FetchFailure("connect", f"no connection within {self._limits.connect:g} s")


def _lost(error: OSError, secret_for: str | None) -> FetchFailure:
    if isinstance(error, ConnectionError):
        during = "in the TLS handshake" if secret_for else "while it was made"
        return FetchFailure("tls" if secret_for else "reset", f"the connection broke off {during}")
    return FetchFailure("connect", f"the host cannot be reached: {error.strerror or error}")


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = _CERTIFICATE.get(error.verify_code, f"is not good: {error.verify_message}")
        return f"the certificate {what}"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return "the other side does not speak TLS"
    reason = (error.reason or "the connection broke off").replace("_", " ").lower()
    return f"the TLS handshake failed: {reason}"


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        hint = "Name a file of certificates in PEM form."
        raise BadInput(f"{ca} holds no certificates to trust.", hint=hint) from error
    if ca is None and not context.cert_store_stats()["x509_ca"] and not _has_path():
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _has_path() -> bool:
    """Whether the system keeps its certificates in a directory, from which they are read one by one."""
    path = os.environ.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().openssl_capath
    return any(Path(path).glob("*.0"))
