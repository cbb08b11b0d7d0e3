"""The OpenSearch engine: who may write, what cannot be used, and what a cluster refuses."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.index.documents import PAGES, found, page
from support.opensearch.cluster import OpenSearchCluster
from usher.errors import (
    BadInput,
    BadSetting,
    Conflict,
    EngineBusy,
    IndexBlocked,
    NotAllowed,
    Unreachable,
)
from usher.index.engine import INSTALLATION
from usher.index.holdings import check_installation
from usher.index.opensearch import bulk, ownership
from usher.index.opensearch.bulk import BulkAction, BulkWriter
from usher.index.opensearch.client import OpenSearchClient
from usher.index.opensearch.connections import ClusterConnections
from usher.index.opensearch.opensearch_engine import OpenSearchEngine
from usher.index.opensearch.options import OpenSearchOptions
from usher.private_files import make_directory
from usher.query.language import parse_query

pytestmark = pytest.mark.soak
TREE = Path(__file__).parents[2]
NUMBERS = count(1)
PASSWORD = "Lighthouse-velvet-77"
HOLDER = """
import sys, time
from pathlib import Path
from usher.index.opensearch.opensearch_engine import OpenSearchEngine
from usher.index.opensearch.options import OpenSearchOptions
options = OpenSearchOptions(url=sys.argv[1], index=sys.argv[2])
OpenSearchEngine.open(options, directory=Path(sys.argv[3]), host="10.0.0.9:8441")
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture
def options(opensearch: OpenSearchCluster) -> Iterator[OpenSearchOptions]:
    """A name of an index that no other test has."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"engine-{worker}-{next(NUMBERS)}"
    yield OpenSearchOptions(url=",".join(opensearch.urls), index=name)
    opensearch.ask(f"/{name}*", method="DELETE")


def opened(options: OpenSearchOptions, directory: Path) -> OpenSearchEngine:
    make_directory(directory)
    return OpenSearchEngine.open(options, directory=directory, host="10.0.0.8:8441")


@pytest.fixture
def engine(options: OpenSearchOptions, tmp_path: Path) -> Iterator[OpenSearchEngine]:
    engine = opened(options, tmp_path / "server")
    yield engine
    engine.close()


def settings_of(opensearch: OpenSearchCluster, index: str, **settings: Any) -> None:  # noqa: ANN401
    opensearch.ask(f"/{index}/_settings", {"index": settings}, method="PUT")


def test_a_second_index_server_gets_a_conflict_while_the_first_lives(
    options: OpenSearchOptions, engine: OpenSearchEngine, tmp_path: Path
) -> None:
    with pytest.raises(Conflict, match=r"index server 10\.0\.0\.8:8441 uses the index"):
        opened(options, tmp_path / "other")
    engine.close()
    second = opened(options, tmp_path / "other")
    second.add(1, PAGES)
    second.commit()
    second.close()


def test_another_machine_takes_over_from_a_dead_index_server(
    options: OpenSearchOptions, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    make_directory(first)
    words = [sys.executable, "-c", HOLDER, options.url, options.index, str(first)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"open\n"
    process.kill()
    process.wait()
    process.stdout.close()
    began = time.monotonic()
    opened(options, first).close()  # the same directory: its process is dead
    assert time.monotonic() - began < ownership.LEASE_SECONDS
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"open\n"
    process.kill()
    process.wait()
    process.stdout.close()
    began = time.monotonic()
    opened(options, tmp_path / "second").close()
    assert time.monotonic() - began >= ownership.LEASE_SECONDS


def test_an_owner_that_cannot_renew_its_claim_writes_no_more(
    options: OpenSearchOptions,
    engine: OpenSearchEngine,
    opensearch: OpenSearchCluster,
) -> None:
    owner = {"owner": "other", "host": "10.0.0.7:8441"}
    opensearch.ask(f"/{options.index}-state/_doc/{ownership.OWNER}", owner, method="PUT")
    deadline = time.monotonic() + 30
    while not engine.problem() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert "10.0.0.7:8441 has taken over" in engine.problem()
    with pytest.raises(Conflict, match="has taken over"):
        engine.add(1, PAGES)
    with pytest.raises(Conflict, match="has taken over"):
        engine.write_state(INSTALLATION, "x")
    assert engine.search(parse_query("index")).total == 0, "it still answers"


def test_an_index_that_is_not_ours_or_of_another_version_is_refused(
    options: OpenSearchOptions, opensearch: OpenSearchCluster, tmp_path: Path
) -> None:
    opensearch.ask(f"/{options.index}", {"mappings": {"properties": {}}}, method="PUT")
    with pytest.raises(Conflict, match="is not Usher's"):
        opened(options, tmp_path / "a")
    meta = {"_meta": {"usher": {"mapping": 0, "words": 1}}}
    opensearch.ask(f"/{options.index}/_mapping", meta, method="PUT")
    with pytest.raises(Conflict, match="Another version of Usher made the index") as refused:
        opened(options, tmp_path / "a")
    assert "Delete the indexes" in refused.value.hint


def test_the_index_of_another_installation_is_refused(engine: OpenSearchEngine) -> None:
    check_installation(engine, "11111111-1111-4111-8111-aaaaaaaaaaaa")
    check_installation(engine, "22222222-2222-4222-8222-aaaaaaaaaaaa")  # after a restore
    with pytest.raises(Conflict, match="another installation"):
        check_installation(engine, "33333333-3333-4333-8333-bbbbbbbbbbbb")


def test_a_deleted_index_is_not_created_by_writing(
    options: OpenSearchOptions, engine: OpenSearchEngine, opensearch: OpenSearchCluster
) -> None:
    engine.add(1, PAGES)
    engine.commit()
    opensearch.ask(f"/{options.index}", method="DELETE")
    with pytest.raises(Conflict, match="was deleted or replaced"):
        engine.add(2, PAGES)
    names = opensearch.ask(f"/{options.index}*/_settings")
    assert list(names) == [f"{options.index}-state"]


def test_a_full_cluster_is_a_problem_until_it_has_space(
    options: OpenSearchOptions,
    engine: OpenSearchEngine,
    opensearch: OpenSearchCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("usher.index.opensearch.chunk_writer.BLOCKED_SECONDS", 1.0)
    settings_of(opensearch, options.index, **{"blocks.read_only_allow_delete": True})
    engine.add(1, PAGES)
    with pytest.raises(IndexBlocked, match="does not accept changes"):
        engine.commit()
    assert "Free disk space in the cluster" in engine.problem()
    settings_of(opensearch, options.index, **{"blocks.read_only_allow_delete": None})
    time.sleep(1.1)
    assert engine.problem() == ""
    engine.add(1, PAGES)
    engine.commit()
    assert engine.chunks() == {1}


def test_a_rejected_document_is_named(options: OpenSearchOptions, engine: OpenSearchEngine) -> None:
    client = OpenSearchClient(ClusterConnections(options.url))
    writer = BulkWriter(client, options.index)
    writer.add(BulkAction("1", b'{"unknown_field": 1}', "https://a.org/bad"))
    with pytest.raises(BadInput, match=r"https://a\.org/bad.*unknown_field"):
        writer.flush()
    client.close()
    assert engine.documents == 0


def test_large_batches_are_written_in_bounded_requests(
    engine: OpenSearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = BulkWriter._write

    def measured(self: BulkWriter, actions: Sequence[BulkAction]) -> tuple[list[BulkAction], str]:
        sizes.append(sum(len(action.lines()) for action in actions))
        return write(self, actions)

    monkeypatch.setattr(bulk, "MAX_REQUEST_BYTES", 20_000)
    with monkeypatch.context() as patch:
        patch.setattr(BulkWriter, "_write", measured)
        engine.add(1, [page(f"p{n}", f"velvet curtain {n} " * 20) for n in range(100)])
        engine.commit()
    assert len(sizes) > 5
    assert max(sizes) < 30_000
    assert engine.count(1) == 100
    assert len(found(engine, "velvet", k=200)) == 100


def test_wrong_addresses_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="needs --engine-url"):
        opened(OpenSearchOptions(url=""), tmp_path)
    with pytest.raises(BadSetting, match="'search:9200' is not the URL"):
        opened(OpenSearchOptions(url="search:9200"), tmp_path)
    with pytest.raises(BadSetting, match="must not contain a password"):
        opened(OpenSearchOptions(url="https://user:secret@search:9200"), tmp_path)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 cannot be reached"):
        opened(OpenSearchOptions(url="http://127.0.0.1:1"), tmp_path)


def test_another_node_answers_for_one_that_is_away(
    options: OpenSearchOptions, tmp_path: Path
) -> None:
    with_dead = OpenSearchOptions(url=f"http://127.0.0.1:1,{options.url}", index=options.index)
    engine = opened(with_dead, tmp_path)
    engine.add(1, PAGES)
    engine.commit()
    for _ in range(8):
        assert found(engine, "title:nasa") == ["nasa"]
    engine.close()


def test_a_commit_waits_until_every_document_is_searchable(
    engine: OpenSearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a node died before it refreshed its shards."""
    monkeypatch.setattr(engine._contents.__class__, "refresh", lambda _: None)
    engine.add(1, PAGES)
    with pytest.raises(EngineBusy, match="Only 0 of 12 new documents"):
        engine.commit()
    monkeypatch.undo()
    assert engine.chunks() == set()
    engine.add(1, PAGES)
    engine.commit()
    assert (engine.chunks(), engine.count(1)) == ({1}, 12)


def documented_role() -> dict[str, Any]:
    """The role with the least privilege, as the page for operators has it."""
    text = (TREE / "docs" / "opensearch.md").read_text(encoding="utf-8")
    [role] = re.findall(r"-d '\s*(\{\"cluster_permissions\".*?\})'\s*\n", text, re.DOTALL)
    return dict(json.loads(role))


def add_user(cluster: OpenSearchCluster, name: str, role: dict[str, Any]) -> None:
    api, password = "/_plugins/_security/api", PASSWORD
    cluster.ask(f"{api}/roles/{name}", role, method="PUT")
    user = {"password": password, "opendistro_security_roles": [name]}
    cluster.ask(f"{api}/internalusers/{name}", user, method="PUT")


def secure_options(cluster: OpenSearchCluster, name: str) -> OpenSearchOptions:
    assert cluster.security
    return OpenSearchOptions(
        url=cluster.url(),
        credential=f"{name}:{PASSWORD}",
        ca_file=str(cluster.security.certificate),
        index=f"usher-{name}",
        replicas=0,
    )


def test_the_documented_role_is_enough(
    secure_opensearch: OpenSearchCluster, tmp_path: Path
) -> None:
    add_user(secure_opensearch, "indexer", documented_role())
    options = secure_options(secure_opensearch, "indexer")
    assert PASSWORD not in repr(options)
    engine = opened(options, tmp_path)
    engine.add(1, PAGES)
    engine.add(2, [page("x", "velvet")])
    engine.commit()
    engine.retire([(PAGES[0].key, 1)])
    engine.drop([2])
    engine.commit()
    engine.write_state(INSTALLATION, "x")
    assert (engine.chunks(), engine.not_loaded(), engine.documents) == ({1}, set(), len(PAGES) - 1)
    query = parse_query("rockets")
    hits = engine.search(query, show=1, hosts=True, explained=True)
    assert (hits.total, len(hits.shown)) == (3, 1)
    assert engine.stats(query).documents == len(PAGES) - 1
    assert engine.suggest(parse_query("rockts"))
    assert engine.frequent_words(5)
    assert engine.snippets(query, [(hits.hits[0].url, 1)])
    assert engine.merge_deleted()
    engine.unload([1])
    engine.commit()
    engine.close()


def test_a_missing_privilege_or_certificate_is_named(
    secure_opensearch: OpenSearchCluster, tmp_path: Path
) -> None:
    role = documented_role()
    role["index_permissions"][0]["allowed_actions"] = ["read"]
    add_user(secure_opensearch, "reader", role)
    options = secure_options(secure_opensearch, "reader")
    with pytest.raises(NotAllowed, match=r"lacks a privilege.*indices:admin/create") as refused:
        opened(options, tmp_path)
    assert "docs/opensearch.md" in refused.value.hint
    with pytest.raises(NotAllowed, match="does not accept the credential"):
        opened(replace(options, credential="reader:wrong"), tmp_path)
    with pytest.raises(Unreachable, match="has no valid certificate") as untrusted:
        opened(replace(options, ca_file=""), tmp_path)
    assert "USHER_ENGINE_CA" in untrusted.value.hint
