"""A cluster that is away, slow, full or refuses the credential: `usher status` says why, and work resumes by itself."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.index.stack import Stack, running_stack
from support.opensearch.cluster import OpenSearchCluster
from support.opensearch.fixtures import own_cluster
from support.opensearch.installation import OpenSearchInstallation
from support.opensearch.rows import EngineRows
from support.processes.commands import run
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = [EMBEDDED, pytest.mark.soak]
PAGES = 12
WATCHDOG = ("--every", "0.3", "--misses", "3", "--probation", "0.3", "--grace", "600")
WAIT_SECONDS = 180  # a write that waits for a node which hangs ends after 70
BLOCK = "index.blocks.read_only_allow_delete"


def site() -> Website:
    return Website({f"/{number}": page(number) for number in range(PAGES)})


def page(number: int) -> Response:
    text = f"<html lang=en><title>Seat {number}</title><p>velvet seat number{number}</p>"
    return Response(text.encode())


def add(stack: Stack, web: Website, numbers: range) -> None:
    stack.crawl.add(*(web.url(f"/{number}") for number in numbers), words=["--pass"])


def start(stack: Stack, rows: EngineRows, *words: str) -> str:
    stack.start("builder", "builder", "--processes", "1")
    stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
    stack.crawl.crawler("crawler", "--pages", "6")
    return rows.start_opensearch(1, *words)


def status_says(stack: Stack, words: str) -> Callable[[], bool]:
    """Whether `usher status` names the index server's problem in these words."""
    return lambda: words in status(stack)


def status(stack: Stack) -> str:
    done = run(["status"], stack.processes.environment)
    return done.out + done.err


def wait_for(true: Callable[[], bool], stack: Stack, seconds: float = WAIT_SECONDS) -> None:
    assert eventually(true, seconds), (status(stack), stack.crawl.log[-5000:])


# An index server that waits for a write of a node that hangs for 15 seconds, not for 70.
SHORT_WRITES = """
from usher.index.opensearch import client
client.WRITE_SECONDS = 15.0  # before other modules import it
from usher.cli.main import main
main()
"""


def finds(stack: Stack, number: int) -> Callable[[], bool]:
    return lambda: len(stack.find(1, "velvet")) == number


def test_a_cluster_that_is_away_slow_or_full(
    database: str, tmp_path: Path, opensearch_installation: OpenSearchInstallation
) -> None:
    (tmp_path / "stack").mkdir()
    with (
        own_cluster(opensearch_installation, tmp_path / "cluster", nodes=1) as cluster,
        site() as web,
        running_stack(database, tmp_path / "stack", chunk_lease=5) as stack,
    ):
        rows = EngineRows(stack, cluster, "trouble", (sys.executable, "-c", SHORT_WRITES))
        cluster.kill(0)
        start(stack, rows)
        add(stack, web, range(3))
        wait_for(status_says(stack, "cannot be reached"), stack)
        cluster.start()
        wait_for(finds(stack, 3), stack)
        fill_disk(stack, web, cluster)
        stop_for_a_while(stack, web, cluster)
        cluster.kill(0)
        add(stack, web, range(9, 12))
        wait_for(status_says(stack, "cannot be reached"), stack)
        cluster.start()
        wait_for(finds(stack, 12), stack)
        wait_for(lambda: "cannot be reached" not in status(stack), stack)


def fill_disk(stack: Stack, web: Website, cluster: OpenSearchCluster) -> None:
    """OpenSearch sets this block when a disk passes its flood stage; searches continue."""
    cluster.ask("/_all/_settings", {BLOCK: True}, method="PUT")
    add(stack, web, range(3, 6))
    wait_for(status_says(stack, "does not accept changes"), stack)
    assert len(stack.find(1, "velvet")) == 3
    cluster.ask("/_all/_settings", {BLOCK: None}, method="PUT")
    wait_for(finds(stack, 6), stack)


def stop_for_a_while(stack: Stack, web: Website, cluster: OpenSearchCluster) -> None:
    """A node that hangs: the index server answers in time that it has no answer."""
    cluster.pause(0)
    add(stack, web, range(6, 9))
    began = time.monotonic()
    assert stack.find(1, "velvet") == []
    assert time.monotonic() - began < 10
    wait_for(status_says(stack, "did not answer"), stack)
    cluster.resume(0)
    wait_for(finds(stack, 9), stack)


def test_a_wrong_credential_is_named(
    database: str, tmp_path: Path, secure_opensearch: OpenSearchCluster
) -> None:
    security = secure_opensearch.security
    assert security is not None
    (tmp_path / "password").write_text("admin:wrong\n")
    with site() as web, running_stack(database, tmp_path, chunk_lease=5) as stack:
        environment = stack.processes.environment
        environment["USHER_ENGINE_CREDENTIAL_FILE"] = str(tmp_path / "password")
        environment["USHER_ENGINE_CA"] = str(security.certificate)
        rows = EngineRows(stack, secure_opensearch, "credential")
        name = start(stack, rows)
        add(stack, web, range(3))
        wait_for(status_says(stack, "does not accept the credential"), stack)
        (tmp_path / "password").write_text("admin:password-of-the-administrator\n")
        stack.processes.kill(name)
        wait_for(finds(stack, 3), stack)
