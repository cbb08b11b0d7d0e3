"""Fixtures of OpenSearch: a cluster that the processes of xdist share, and clusters of one test.

A process that uses a cluster holds a shared lock of a file, which the kernel releases when the process ends. Each
node waits for the exclusive lock, so the nodes stop with the last process that uses them. In the shared cluster each
test uses index names of its own.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.opensearch.cluster import (
    HEAP_MB,
    QUICK_DETECTION,
    ClusterProcess,
    OpenSearchCluster,
    new_cluster,
)
from support.opensearch.installation import OpenSearchInstallation, require_installation
from support.opensearch.security import make_security


@pytest.fixture(scope="session")
def opensearch_installation() -> OpenSearchInstallation:
    return require_installation()


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this run of pytest share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@contextmanager
def used(directory: Path) -> Iterator[None]:
    """Hold the lock without which the nodes in this directory stop."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "users.lock").open("a+") as file:
        fcntl.lockf(file, fcntl.LOCK_SH)
        yield


@pytest.fixture(scope="session")
def opensearch(
    opensearch_installation: OpenSearchInstallation, shared_directory: Path
) -> Iterator[OpenSearchCluster]:
    """A cluster of three nodes, shared by all tests of this run: a test must not kill its nodes."""
    directory = shared_directory / "opensearch"
    with used(directory):
        with (directory / "start.lock").open("a+") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            cluster = _attach(opensearch_installation, directory)
        yield cluster


def _attach(installation: OpenSearchInstallation, directory: Path) -> OpenSearchCluster:
    """The cluster that another process has started; the first process starts it.

    Nodes stopped if the processes that used them ended meanwhile: this starts them again.
    """
    ports = directory / "ports.json"
    if not ports.exists():
        cluster = new_cluster(installation, directory)
        start_or_stop(cluster)
        numbers = [(node.port, node.transport_port) for node in cluster.nodes]
        ports.write_text(json.dumps(numbers))
        return cluster
    nodes = [
        ClusterProcess(f"node-{number}", directory / f"node-{number}", *pair)
        for number, pair in enumerate(json.loads(ports.read_text()), 1)
    ]
    cluster = OpenSearchCluster(installation, directory, nodes)
    for number in range(len(nodes)):
        if not cluster.answers(number):
            cluster.start_node(number)
    cluster.wait_nodes(len(nodes))
    return cluster


def start_or_stop(cluster: OpenSearchCluster) -> None:
    """Start all nodes; if that fails stop them, so that another process may try."""
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise


@contextmanager
def own_cluster(
    installation: OpenSearchInstallation,
    directory: Path,
    *,
    nodes: int = 3,
    secure: bool = False,
    heap_mb: int = HEAP_MB,
    fast: bool = False,
) -> Iterator[OpenSearchCluster]:
    """Run a cluster whose nodes the caller may kill."""
    security = make_security(installation, directory / "tls") if secure else None
    cluster = new_cluster(
        *(installation, directory),
        nodes=nodes,
        security=security,
        settings=QUICK_DETECTION,
        heap_mb=heap_mb,
        fast=fast,
    )
    with used(directory):
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture(scope="module")
def secure_opensearch(
    opensearch_installation: OpenSearchInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenSearchCluster]:
    """One node with TLS and users."""
    directory = tmp_path_factory.mktemp("secure-opensearch")
    with own_cluster(opensearch_installation, directory, nodes=1, secure=True) as cluster:
        yield cluster
