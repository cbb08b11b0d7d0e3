"""The role of docs/opensearch.md is enough for an index server, and an index of others is closed to it."""

import json
import re
from pathlib import Path

import pytest

from support.index.documents import PAGES, found, page
from support.opensearch.cluster import OpenSearchCluster, OpenSearchError
from usher.errors import NotAllowed
from usher.index.opensearch.opensearch_engine import OpenSearchEngine
from usher.index.opensearch.options import OpenSearchOptions
from usher.query.language import parse_query

pytestmark = pytest.mark.soak
PAGE = Path(__file__).parents[2] / "docs" / "opensearch.md"
PASSWORD = "A-LONG-PASSWORD-of-7-words"
REQUEST = re.compile(r"-X PUT https://search-1:9200(/\S+) .*?-d\s+'(.*?)'", re.DOTALL)


def options(cluster: OpenSearchCluster, index: str) -> OpenSearchOptions:
    assert cluster.security is not None
    return OpenSearchOptions(
        url=cluster.url(),
        index=index,
        credential=f"usher:{PASSWORD}",
        ca_file=str(cluster.security.certificate),
        replicas=0,
    )


@pytest.fixture(scope="module")
def cluster(secure_opensearch: OpenSearchCluster) -> OpenSearchCluster:
    """A cluster in which the requests of the page were sent."""
    requests = REQUEST.findall(PAGE.read_text("utf-8"))
    assert len(requests) == 2
    for path, body in requests:
        sent = json.loads(body.replace("A-LONG-PASSWORD", PASSWORD))
        secure_opensearch.ask(path, sent, method="PUT")
    return secure_opensearch


def test_the_role_is_enough(cluster: OpenSearchCluster, tmp_path: Path) -> None:
    engine = OpenSearchEngine.open(options(cluster, "usher"), directory=tmp_path, host="server:1")
    engine.add(1, PAGES)
    engine.add(2, [page("x", "velvet")])
    engine.commit()
    engine.retire([(PAGES[0].key, 1)])
    engine.drop([2])
    engine.commit()
    engine.write_state("incarnation", "x")
    assert engine.read_state("incarnation") == "x"
    engine.merge_deleted()
    assert (engine.chunks(), engine.not_loaded(), engine.documents) == ({1}, set(), 11)
    query = parse_query("rockets")
    hits = engine.search(query, show=3, hosts=True, explained=True)
    assert len(hits.shown) == 3
    assert engine.stats(query).documents >= 11
    assert engine.frequent_words(5)
    assert engine.suggest(parse_query("rocketz"))
    assert engine.snippets(query, [(hits.hits[0].url, 1)])
    assert found(engine, "velvet") == []
    engine.close()


def test_other_indexes_are_closed_to_it(cluster: OpenSearchCluster, tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="lacks a privilege"):
        OpenSearchEngine.open(options(cluster, "other"), directory=tmp_path, host="server:1")
    user = ("usher", PASSWORD)
    for path in ("/_cat/indices", "/other/_search", "/_cluster/settings"):
        with pytest.raises(OpenSearchError, match="403"):
            cluster.ask(path, user=user)
