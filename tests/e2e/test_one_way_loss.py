"""Packets that vanish in one direction, between real network namespaces: front-end, router and index server."""

import asyncio
import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.index.documents import page
from support.index.rows import Rows, ServerProcess, filled
from support.mgmt.chunk_trade import soon
from support.processes.namespaces import CLONE_NEWNET, needs_root
from usher.query.language import parse_query
from usher.search.broker import Broker
from usher.search.cluster_map import ClusterView

DOCUMENTS = {1: [page(f"{number}", "everywhere") for number in range(10)]}
FRONT_ADDRESS, SERVER_ADDRESS = "10.77.1.1", "10.77.2.1"
DETECTION_SECONDS = 20.0  # six are promised; the rest is for a busy machine
FRONT, ROUTER, SERVER = (f"usher-{name}-{os.getpid()}" for name in ("front", "router", "server"))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def inside(name: str, *words: str) -> None:
    subprocess.run(["ip", "netns", "exec", name, *words], check=True, capture_output=True)


def link(name: str, address: str, number: int) -> None:
    """A wire between the router and a namespace, which reaches everything through it."""
    gateway, near, far = f"10.77.{number}.254", f"ushern{number}", f"usherf{number}"
    ip("link", "add", near, "netns", ROUTER, "type", "veth", "peer", "name", far, "netns", name)
    ip("-n", ROUTER, "addr", "add", f"{gateway}/24", "dev", near)
    ip("-n", name, "addr", "add", f"{address}/24", "dev", far)
    for namespace, device in ((ROUTER, near), (name, far), (name, "lo")):
        ip("-n", namespace, "link", "set", device, "up")
    ip("-n", name, "route", "add", "default", "via", gateway)


@contextmanager
def network() -> Iterator[None]:
    """Three namespaces in a line; the router forwards."""
    names = (FRONT, ROUTER, SERVER)
    try:
        for name in names:
            ip("netns", "add", name)
        link(FRONT, FRONT_ADDRESS, 1)
        link(SERVER, SERVER_ADDRESS, 2)
        inside(ROUTER, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def losing(destination: str) -> Iterator[None]:
    """The router drops what goes to this address, and only that."""
    ip("-n", ROUTER, "route", "add", "blackhole", f"{destination}/32")
    try:
        yield
    finally:
        ip("-n", ROUTER, "route", "del", "blackhole", f"{destination}/32")


def enter(name: str) -> None:
    """Move the calling thread into a namespace."""
    handle = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(handle)


def in_front_end(directory: Path, remote: str, lost: str) -> None:
    """Run the search in the front-end's namespace; raises what it raises."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            enter(FRONT)
            asyncio.run(searched(directory, remote, lost))
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


async def searched(directory: Path, remote: str, lost: str) -> None:
    async with Rows(directory) as rows:
        await rows.add(2, DOCUMENTS)
        rows.maps.rows[1] = {remote: list(DOCUMENTS)}
        async with rows.cluster() as cluster:
            keeping = asyncio.create_task(cluster.run())
            broker = Broker(cluster, deadline=5)
            assert await complete(broker, 4)
            with losing(lost):
                assert await becomes(cluster, remote, asked=False), "the loss was not detected"
                assert await complete(broker, 4)
            assert await becomes(cluster, remote, asked=True), "it was not used again"
            assert await complete(broker, 4)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


async def complete(broker: Broker, number: int) -> bool:
    """Whether so many searches are complete."""
    answers = [await broker.search(parse_query("everywhere")) for _ in range(number)]
    return all(not answer.partial and answer.results.total == 10 for answer in answers)


async def becomes(cluster: ClusterView, remote: str, *, asked: bool) -> bool:
    return bool(
        await soon(lambda: cluster.is_available(remote) == asked, seconds=DETECTION_SECONDS)
    )


@needs_root
@pytest.mark.soak
@pytest.mark.parametrize("lost", [FRONT_ADDRESS, SERVER_ADDRESS], ids=["answers", "questions"])
def test_packets_lost_in_one_direction(tmp_path: Path, lost: str) -> None:
    """No query is needed to detect it, and no search is partial because of it."""
    filled(tmp_path / "remote", DOCUMENTS).close()
    with network():
        within = ("ip", "netns", "exec", SERVER)
        remote = ServerProcess(tmp_path / "remote", 8441, address=SERVER_ADDRESS, within=within)
        try:
            in_front_end(tmp_path, remote.host, lost)
        finally:
            remote.kill()
