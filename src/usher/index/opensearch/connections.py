"""HTTP/1.1 connections to the nodes of a cluster, for calls from threads.

A node that refuses a connection or is late is left alone for some seconds; the request goes to another node meanwhile.
"""

import base64
import ssl
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Lock
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from usher.certificates import TrustedAuthorities, certificate_problem
from usher.errors import BadSetting, LateAnswer, Unreachable
from usher.index.metrics import ENGINE_FAILURES
from usher.telemetry import Log

log = Log("index")
DEFAULT_PORT: Final = 9200
CONNECT_SECONDS: Final = 3.0
AVOID_SECONDS: Final = (5.0, 60.0)  # a node that failed: at first, at most
MAX_IDLE_CONNECTIONS: Final = 32  # to each node
MIN_TIMEOUT_SECONDS: Final = 0.05
URL_HINT: Final = "For example https://search.example.org:9200; several are separated by commas."
AWAY_HINT: Final = "Check --engine-url, and that the cluster runs."


class HttpAnswer(NamedTuple):
    """An answer of a node."""

    status: int
    body: bytes


class ClusterNode:
    """One node and its idle connections."""

    def __init__(self, url: SplitResult, tls: ssl.SSLContext | None) -> None:
        self.name = url.netloc
        self.avoided_until = 0.0
        self._pause = AVOID_SECONDS[0]
        self._host, self._port = url.hostname or "", url.port or DEFAULT_PORT
        self._path = url.path.rstrip("/")
        self._tls = tls
        self._idle: list[HTTPConnection] = []

    def ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str], seconds: float
    ) -> HttpAnswer:
        """Send a request; a new connection replaces idle ones that the node has closed."""
        while self._idle:
            connection = self._pop_idle()
            if connection is None:
                break
            try:
                return self._exchange(connection, method, path, body, headers, seconds)
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                continue
        return self._exchange(self._connect(seconds), method, path, body, headers, seconds)

    def _exchange(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        seconds: float,
    ) -> HttpAnswer:
        is_reusable = False
        try:
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            answer = HttpAnswer(response.status, response.read())
            self._pause = AVOID_SECONDS[0]
            is_reusable = not response.will_close and len(self._idle) < MAX_IDLE_CONNECTIONS
            return answer
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                connection.close()

    def _connect(self, seconds: float) -> HTTPConnection:
        timeout = min(seconds, CONNECT_SECONDS)
        connection: HTTPConnection
        if self._tls is None:
            connection = HTTPConnection(self._host, self._port, timeout=timeout)
        else:
            connection = HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        connection.connect()
        return connection

    def _pop_idle(self) -> HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:  # another thread was faster
            return None

    def avoid(self) -> None:
        """Leave the node alone for a while, longer after each failure."""
        self.avoided_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, AVOID_SECONDS[1])
        self.close()

    def close(self) -> None:
        while connection := self._pop_idle():
            connection.close()


class ClusterConnections:
    """The nodes of a cluster; thread-safe."""

    def __init__(self, urls: str, *, credential: str = "", ca_file: str = "") -> None:
        addresses = [read_url(url) for url in urls.split(",") if url.strip()]
        if not addresses:
            raise BadSetting("The OpenSearch engine needs --engine-url.", hint=URL_HINT)
        self._authorities = TrustedAuthorities(
            ca_file, setting="engine_ca", address_setting="engine_url"
        )
        tls = _tls_context(ca_file) if any(url.scheme == "https" for url in addresses) else None
        self.nodes = [ClusterNode(url, tls if url.scheme == "https" else None) for url in addresses]
        self._headers = {"Content-Type": "application/json", **_authorization(credential)}
        self._lock = Lock()
        self._turn = 0

    def ask(self, method: str, path: str, body: bytes = b"", *, seconds: float) -> HttpAnswer:
        """Send a request to one node, and to the next if that cannot be reached; Unreachable if none can.

        So a request may be processed twice: every request must be idempotent.
        """
        until = time.monotonic() + seconds
        reason = ""
        for node in self._ordered_nodes():
            left = max(until - time.monotonic(), MIN_TIMEOUT_SECONDS)
            try:
                return node.ask(method, path, body, self._headers, left)
            except ssl.SSLError as error:
                raise Unreachable(
                    f"{node.name} has no valid certificate: {error}.",
                    hint=self._authorities.hint(certificate_problem(error)),
                ) from error
            except TimeoutError:
                reason = f"{node.name} did not answer within {left:.3g} seconds"
                self._avoid(node, "late", reason)
                if time.monotonic() >= until:
                    raise LateAnswer(f"{reason}.", hint=AWAY_HINT) from None
            except (OSError, HTTPException) as error:
                reason = f"{node.name} cannot be reached: {str(error) or type(error).__name__}"
                self._avoid(node, "away", reason)
        raise Unreachable(f"{reason}.", hint=AWAY_HINT)

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _ordered_nodes(self) -> Sequence[ClusterNode]:
        """All nodes in turns, those that failed recently last."""
        with self._lock:
            self._turn += 1
            turn = self._turn % len(self.nodes)
        now = time.monotonic()
        nodes = [*self.nodes[turn:], *self.nodes[:turn]]
        return sorted(nodes, key=lambda node: node.avoided_until > now)

    def _avoid(self, node: ClusterNode, why: str, reason: str) -> None:
        ENGINE_FAILURES.labels(why).inc()
        if node.avoided_until < time.monotonic():  # otherwise another request has noticed it
            log.warning("engine_node_avoided", node=node.name, why=why, error=reason)
            node.avoid()


def read_url(text: str) -> SplitResult:
    """The address of a node; BadSetting if it is none."""
    url = urlsplit(text.strip())
    try:
        port = url.port
    except ValueError:
        port = -1
    if url.scheme not in ("http", "https") or not url.hostname or port == -1 or url.query:
        raise BadSetting(f"{text.strip()!r} is not the URL of an OpenSearch node.", hint=URL_HINT)
    if url.username is not None:
        hint = "Put user:password into a file and name it: USHER_ENGINE_CREDENTIAL_FILE."
        raise BadSetting("The URL of OpenSearch must not contain a password.", hint=hint)
    return url


def _authorization(credential: str) -> dict[str, str]:
    """The header for `user:password`, `Bearer TOKEN`, or an API key."""
    text = credential.strip()
    if not text:
        return {}
    scheme, _, rest = text.partition(" ")
    if scheme.lower() in ("apikey", "bearer") and rest:
        value = text
    elif ":" in text:
        value = f"Basic {base64.b64encode(text.encode()).decode()}"
    else:
        value = f"ApiKey {text}"
    if "\r" in value or "\n" in value:
        raise BadSetting("The credential of OpenSearch has more than one line.")
    return {"Authorization": value}


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(f"{ca_file} cannot be used as a certificate file: {error}.") from error
