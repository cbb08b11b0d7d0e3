"""The cluster of OpenSearch that tests use: nodes, a killed node, TLS and users."""

from pathlib import Path

import pytest

from support.opensearch.cluster import OpenSearchCluster, OpenSearchError
from support.opensearch.fixtures import own_cluster
from support.opensearch.installation import OpenSearchInstallation
from support.processes.killable import eventually

pytestmark = pytest.mark.soak
WAIT_SECONDS = 180  # for copies of an index; on an idle machine less than one


def is_green(cluster: OpenSearchCluster, index: str) -> bool:
    """Whether all copies of the index are there."""
    return bool(cluster.ask(f"/_cluster/health/{index}")["status"] == "green")


def test_the_shared_cluster_has_three_nodes(opensearch: OpenSearchCluster) -> None:
    """Only its own index is green at once: other tests create indexes meanwhile."""
    copies = {"settings": {"number_of_shards": 1, "number_of_replicas": 2}}
    opensearch.ask("/shared-cluster", copies, method="PUT")
    assert eventually(lambda: is_green(opensearch, "shared-cluster"), WAIT_SECONDS)
    assert opensearch.ask("/_cluster/health")["number_of_nodes"] == 3
    opensearch.ask("/shared-cluster/_doc/1?refresh=true", {"text": "hello"})
    for number in range(3):
        query = {"query": {"match": {"text": "hello"}}}
        hits = opensearch.ask("/shared-cluster/_search", query, through=number)["hits"]
        assert [hit["_id"] for hit in hits["hits"]] == ["1"]
    opensearch.ask("/shared-cluster", method="DELETE")


def test_a_killed_node_leaves_its_documents_to_the_others(
    opensearch_installation: OpenSearchInstallation, tmp_path: Path
) -> None:
    with own_cluster(opensearch_installation, tmp_path) as cluster:
        settings = {"settings": {"number_of_replicas": 1, "number_of_shards": 3}}
        cluster.ask("/kept", settings, method="PUT")
        assert eventually(lambda: is_green(cluster, "kept"), WAIT_SECONDS)
        cluster.ask("/kept/_doc/1?refresh=true", {"text": "hello"})
        cluster.kill(1)
        cluster.wait_nodes(2)
        assert cluster.ask("/kept/_count")["count"] == 1
        cluster.start()
        assert eventually(lambda: is_green(cluster, "kept"), WAIT_SECONDS)


def test_a_secure_cluster_refuses_a_wrong_password(secure_opensearch: OpenSearchCluster) -> None:
    assert secure_opensearch.ask("/_cluster/health")["number_of_nodes"] == 1
    with pytest.raises(OpenSearchError, match="401"):
        secure_opensearch.ask("/_cluster/health", user=("admin", "wrong"))
