"""Makes a connection to a host: resolves the name, checks the addresses, and does the TLS handshake.

The connection goes to the address that was checked, so a name that changes its addresses gains nothing.
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
from usher.certificates import describe_certificate_error
from usher.crawl.http import address_guard
from usher.crawl.http.connection import FetchConnection, FetchLimits
from usher.crawl.http.dns import DnsResolver
from usher.crawl.http.response import FetchFailure
from usher.crawl.own_endpoints import OwnEndpoint, same_machine
from usher.errors import BadInput
from usher.private_hosts import AllowList, HostPermission

NOT_TLS: Final = "the host does not speak TLS"
LOST_DURING_TLS: Final = "the connection was lost during the TLS handshake"


class Connector:
    """Makes connections; `ca` is a file of certificates to trust instead of the system's."""

    def __init__(
        self,
        resolver: DnsResolver,
        limits: FetchLimits,
        allowed: AllowList,
        own: Iterable[OwnEndpoint],
        ca: Path | None,
    ) -> None:
        self._resolver, self._limits, self._allowed = resolver, limits, allowed
        self._own = tuple(own)
        if ca is not None:  # an unusable file fails at once
            self._tls = _trusting(ca)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The certificates that the system trusts, read when first needed because that takes a while."""
        return _trusting(None)

    async def connect(
        self,
        host: str,
        port: int,
        on_close: Callable[[FetchConnection], None],
        *,
        tls: bool,
        permission: HostPermission | None = None,
    ) -> FetchConnection:
        """Return a new connection; the addresses of the name are tried in turn and share the time limit."""
        addresses = self._checked(host, port, await self._addresses(host), permission)
        addresses = await self._without_own(addresses, port)
        clock = asyncio.get_running_loop().time
        until = clock() + self._limits.connect
        timed_out = FetchFailure("connect", f"no connection within {self._limits.connect:g} s")
        failure = timed_out
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            make = partial(FetchConnection, address, self._limits, on_close)
            try:
                async with asyncio.timeout((until - clock()) / left):
                    return await self._connect(make, address, port, host if tls else None)
            except TimeoutError:
                failure = timed_out
            except FetchFailure as error:
                failure = error
                if error.kind == "tls":
                    break
        raise failure

    async def _addresses(self, host: str) -> tuple[str, ...]:
        try:
            return (str(ip_address(host)),)
        except ValueError:
            return await self._resolver.resolve(host, self._limits.lookup)

    def _checked(
        self, host: str, port: int, addresses: tuple[str, ...], permission: HostPermission | None
    ) -> list[str]:
        """Return the addresses that the guard allows; raise FetchFailure if it allows none."""
        reasons = {
            address: address_guard.refusal_reason(self._allowed, host, address, port, permission)
            for address in addresses
        }
        allowed = [address for address, reason in reasons.items() if not reason]
        if not allowed:
            reason = reasons[addresses[0]]
            if reason.startswith("port"):
                raise FetchFailure("port", reason)
            command = address_guard.permission_command(host, port)
            raise FetchFailure("private", f"{reason}; {command}")
        return allowed

    async def _without_own(self, addresses: list[str], port: int) -> list[str]:
        """Leave out addresses where Usher itself listens at this port; raise FetchFailure if none is left."""
        own: list[Address] = []
        for endpoint in self._own:
            if endpoint.port == port:
                own += await self._parsed_addresses(endpoint.host)
        others = [
            text
            for text in addresses
            if not any(same_machine(parse_address(text), address) for address in own)
        ]
        if not others:
            raise FetchFailure("own", f"Usher itself listens at {addresses[0]} port {port}")
        return others

    async def _parsed_addresses(self, host: str) -> list[Address]:
        try:
            return [parse_address(text) for text in await self._addresses(host)]
        except FetchFailure:  # a name without an address is no endpoint
            return []

    async def _connect(
        self, make: Callable[[], FetchConnection], address: str, port: int, tls_name: str | None
    ) -> FetchConnection:
        context = self._tls if tls_name else None
        connect = asyncio.get_running_loop().create_connection
        try:
            _, connection = await connect(
                make, address, port, ssl=context, server_hostname=tls_name
            )
        except TimeoutError:
            raise
        except ssl.SSLError as error:
            raise FetchFailure("tls", _describe_tls(error)) from error
        except ConnectionRefusedError as error:
            raise FetchFailure("refused", "the connection was refused") from error
        except ConnectionError as error:
            words = LOST_DURING_TLS if tls_name else "the connection was lost while connecting"
            raise FetchFailure("tls" if tls_name else "reset", words) from error
        except OSError as error:
            words = f"the host is unreachable: {error.strerror or error}"
            raise FetchFailure("connect", words) from error
        return connection


def _describe_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate {describe_certificate_error(error)}"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return NOT_TLS
    if isinstance(error, ssl.SSLEOFError):
        return LOST_DURING_TLS
    reason = (error.reason or "the connection was lost").replace("_", " ").lower()
    return f"the TLS handshake failed: {reason}"


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        hint = "Name a file of certificates in PEM form."
        raise BadInput(f"{ca} holds no certificates.", hint=hint) from error
    if ca is None and not context.cert_store_stats()["x509_ca"] and not _has_certificates():
        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _has_certificates() -> bool:
    """Return whether the system has a directory of certificates, which OpenSSL reads one by one."""
    path = os.environ.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().openssl_capath
    return any(Path(path).glob("*.0"))
