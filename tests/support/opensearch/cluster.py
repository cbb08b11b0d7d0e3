"""A cluster of OpenSearch on loopback; each node is a process of its own, which a test can kill."""

import json
import os
import signal
import socket
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.opensearch.installation import LOG_CONFIG, OpenSearchInstallation
from support.opensearch.security import ADMIN, ClusterSecurity
from support.processes.free_port import free_port
from support.processes.killable import eventually

START_SECONDS: Final = 400  # about 15 on two idle cores
REQUEST_SECONDS: Final = 30
HEAP_MB: Final = 384
# The disk of the tests may be nearly full.
TEST_SETTINGS: Final[Mapping[str, Any]] = {
    "cluster.routing.allocation.disk.threshold_enabled": False
}
# Of clusters whose nodes a test kills or stops. On a busy machine they remove nodes that are only slow.
QUICK_DETECTION: Final[Mapping[str, Any]] = {
    "cluster.fault_detection.follower_check.interval": "500ms",
    "cluster.fault_detection.follower_check.timeout": "2s",
    "cluster.fault_detection.leader_check.interval": "500ms",
    "cluster.fault_detection.leader_check.timeout": "2s",
}


@dataclass(slots=True)
class ClusterProcess:
    """One node: its directory, its ports and its process."""

    name: str
    home: Path
    port: int
    transport_port: int
    pid: int | None = None

    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")


class OpenSearchError(Exception):
    """An answer of OpenSearch with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:2000]}")
        self.status = status


@dataclass
class OpenSearchCluster:
    """Nodes that run, or that a test has killed."""

    installation: OpenSearchInstallation
    directory: Path
    nodes: list[ClusterProcess]
    security: ClusterSecurity | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    heap_mb: int = HEAP_MB
    fast: bool = False

    def url(self, number: int = 0) -> str:
        scheme = "https" if self.security else "http"
        return f"{scheme}://127.0.0.1:{self.nodes[number].port}"

    @property
    def urls(self) -> list[str]:
        return [self.url(number) for number in range(len(self.nodes))]

    def start(self) -> None:
        """Start every node that does not run, and wait until the cluster is complete."""
        for number, node in enumerate(self.nodes):
            if node.pid is None:
                self.start_node(number)
        self.wait_nodes(len(self.nodes))

    def start_node(self, number: int) -> None:
        """Start one node; does not wait."""
        node = self.nodes[number]
        config = node.home / "config"
        config.mkdir(parents=True, exist_ok=True, mode=0o700)
        (config / "opensearch.yml").write_text(json.dumps(self._config(node)))  # JSON is YAML
        (config / "log4j2.properties").write_text(LOG_CONFIG)
        if self.security:
            self.security.write(config)
        command = self.installation.command(
            node.home,
            self.directory / "users.lock",
            heap_mb=self.heap_mb,
            secure=self.security is not None,
            fast=self.fast,
        )
        log = str(node.home / "log")
        # In its own session, so that Ctrl-C reaches the tests first and the node ends by its lock.
        node.pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def answers(self, number: int) -> bool:
        """Whether a node accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", self.nodes[number].port), 5).close()
        except OSError:
            return False
        return True

    def writes_to(self, index: str) -> bool:
        """Whether the cluster still executes a write to indexes whose name begins so, maybe of a killed client."""
        nodes = self.ask("/_tasks?detailed=true&actions=indices:data/write*")["nodes"].values()
        tasks = [task for node in nodes for task in node["tasks"].values()]
        return any(f"[{index}" in task["description"] for task in tasks)

    def kill(self, number: int) -> None:
        """Kill one node with signal 9."""
        node = self.nodes[number]
        assert node.pid is not None
        os.kill(node.pid, signal.SIGKILL)
        os.waitpid(node.pid, 0)
        node.pid = None

    def pause(self, number: int) -> None:
        """Stop one node without ending it, as a machine that hangs."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._signal(number, signal.SIGCONT)

    def _signal(self, number: int, name: signal.Signals) -> None:
        pid = self.nodes[number].pid
        assert pid is not None
        os.kill(pid, name)

    def stop(self) -> None:
        """Kill every node; its data stays."""
        for number, node in enumerate(self.nodes):
            if node.pid is not None:
                self.kill(number)

    def wait_nodes(self, number: int, *, through: int = 0) -> None:
        """Wait until a cluster of that many nodes answers."""

        def is_complete() -> bool:
            try:
                return bool(
                    self.ask("/_cluster/health", through=through)["number_of_nodes"] == number
                )
            except (OSError, OpenSearchError):
                return False

        assert eventually(is_complete, START_SECONDS), "\n".join(
            node.log()[-3000:] for node in self.nodes
        )

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        method: str = "",
        user: tuple[str, str] = ADMIN,
        through: int = 0,
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a request as the administrator or as `user`; OpenSearchError with an error status."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        context = None
        if self.security:
            headers["Authorization"] = "Basic " + b64encode(":".join(user).encode()).decode()
            context = ssl.create_default_context(cafile=str(self.security.certificate))
        request = urllib.request.Request(  # noqa: S310 - loopback
            self.url(through) + path, data, headers, method=method or ("POST" if data else "GET")
        )
        try:
            with urllib.request.urlopen(  # noqa: S310 - loopback
                request, timeout=REQUEST_SECONDS, context=context
            ) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            raise OpenSearchError(error.code, error.read().decode(errors="replace")) from error

    def _config(self, node: ClusterProcess) -> dict[str, Any]:
        return {
            "cluster.name": "usher-tests",
            "node.name": node.name,
            "network.host": "127.0.0.1",
            "http.port": node.port,
            "transport.port": node.transport_port,
            "discovery.seed_hosts": [f"127.0.0.1:{other.transport_port}" for other in self.nodes],
            "cluster.initial_cluster_manager_nodes": [other.name for other in self.nodes],
            **TEST_SETTINGS,
            **(self.security.settings() if self.security else {}),
            **self.settings,
        }


def new_cluster(
    installation: OpenSearchInstallation,
    directory: Path,
    *,
    nodes: int = 3,
    security: ClusterSecurity | None = None,
    settings: Mapping[str, Any] | None = None,
    heap_mb: int = HEAP_MB,
    fast: bool = False,
) -> OpenSearchCluster:
    """Describe a cluster in an own directory; starts nothing."""
    processes = [
        ClusterProcess(f"node-{number}", directory / f"node-{number}", free_port(), free_port())
        for number in range(1, nodes + 1)
    ]
    return OpenSearchCluster(
        installation, directory, processes, security, settings or {}, heap_mb, fast
    )
