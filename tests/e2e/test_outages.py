"""Searches go on while MGMT or PostgreSQL is away, also where every component demands tickets."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.processes.guarded_cluster import (
    TICKET_SECONDS,
    GuardedCluster,
    call,
    failed_searches,
    guarded_cluster,
    soon,
)
from usher.http.client.mgmt_client import Client

OUTAGE_SECONDS = 1.5 * TICKET_SECONDS
FRONTS = ("front", "front-2")


@contextmanager
def frozen(cluster: GuardedCluster, *names: str) -> Iterator[None]:
    cluster.signal(signal.SIGSTOP, *names)
    try:
        yield
    finally:
        cluster.signal(signal.SIGCONT, *names)


@contextmanager
def killed(cluster: GuardedCluster, *names: str) -> Iterator[None]:
    for name in names:
        cluster.processes.running[name].kill()
        cluster.processes.running[name].wait()
    yield
    for name in names:
        cluster.start_mgmt(name)


@contextmanager
def no_postgres(cluster: GuardedCluster) -> Iterator[None]:
    cluster.stop_postgres()
    try:
        yield
    finally:
        cluster.start_postgres()


async def started(cluster: GuardedCluster) -> None:
    """Two MGMT, two rows of one server, two front-ends at different MGMT, all filled."""
    cluster.add_token("front", "front-end")  # without any token MGMT does not start
    cluster.start_mgmt("mgmt-1")
    cluster.start_mgmt("mgmt-2")
    cluster.usher("components", "rows", "--set", "2")
    for row in (1, 2):
        cluster.start(f"server-{row}", "index-server", "mgmt-2", "--row", str(row))
    cluster.start("front", "front-end", "mgmt-1")
    cluster.start("front-2", "front-end", "mgmt-2")
    await cluster.fill("mgmt-1")
    for name in FRONTS:
        await soon(lambda name=name: cluster.is_complete(name))  # type: ignore[misc]


async def ticket_of(cluster: GuardedCluster, name: str) -> dict[str, str]:
    token = cluster.tokens[name]
    async with Client(cluster.url("mgmt-1"), host=cluster.host(name), token=token) as client:
        return {"Authorization": f"Bearer {await client.ticket(cluster.host('server-1'))}"}


def asked(cluster: GuardedCluster, headers: dict[str, str]) -> int:
    """The status that server 1 answers to the bearer of a ticket."""
    return call(cluster.ports["server-1"], "/search", headers, {"query": "everywhere"})[0]


@pytest.mark.soak
async def test_searches_outlast_tickets_while_mgmt_or_postgresql_is_away() -> None:
    with guarded_cluster("offline_grace = 120\n") as cluster:
        await started(cluster)
        await a_revocation_counts_later(cluster)
        outages: list[Callable[[], object]] = [
            lambda: killed(cluster, "mgmt-1"),  # only one front-end loses its MGMT
            lambda: killed(cluster, "mgmt-1", "mgmt-2"),
            lambda: frozen(cluster, "mgmt-1", "mgmt-2"),
            lambda: no_postgres(cluster),
        ]
        for number, outage in enumerate(outages):
            with outage():  # type: ignore[attr-defined]
                failures = await asyncio.to_thread(
                    failed_searches, cluster, OUTAGE_SECONDS, *FRONTS
                )
                assert not failures, (number, failures[:2], len(failures), cluster.log[-6000:])
            await soon(cluster.has_postgres)
        await a_front_end_that_starts_without_mgmt(cluster)


async def a_revocation_counts_later(cluster: GuardedCluster) -> None:
    """A revocation that the server has heard of counts on while MGMT is away; other tickets stay good."""
    cluster.add_token("revoked", "front-end")
    cluster.add_token("kept", "front-end")
    revoked, kept = [await ticket_of(cluster, name) for name in ("revoked", "kept")]
    assert [asked(cluster, headers) for headers in (revoked, kept)] == [200, 200]
    cluster.usher("tokens", "revoke", "revoked")
    await soon(lambda: asked(cluster, revoked) == 401)
    with killed(cluster, "mgmt-1", "mgmt-2"):
        await asyncio.sleep(OUTAGE_SECONDS)
        assert [asked(cluster, headers) for headers in (revoked, kept)] == [401, 200]


async def a_front_end_that_starts_without_mgmt(cluster: GuardedCluster) -> None:
    """It has no map and no tickets, so it says so; it searches as soon as MGMT is back."""
    with killed(cluster, "mgmt-1", "mgmt-2"):
        cluster.processes.running["front"].kill()
        cluster.processes.running["front"].wait()
        cluster.start("front", "front-end", "mgmt-1")
        await soon(lambda: answers(cluster))
        status, problem = cluster.search()
        assert (status, "no map of the index servers" in problem["detail"]) == (503, True)
        assert [call(cluster.ports[name], "/readyz")[0] for name in FRONTS] == [503, 200]
        assert cluster.is_complete("front-2")
    await soon(cluster.is_complete)
    assert call(cluster.ports["front"], "/readyz")[0] == 200


def answers(cluster: GuardedCluster) -> bool:
    try:
        return cluster.search()[0] == 503
    except OSError:
        return False
