"""Network namespaces around a hub: each machine has one, and the hub routes between them.

The hub is the network namespace of the harness. Neighbours are permanent, so a cut link loses packets in silence as a
broken router does; without that the kernel would report "no route to host" after three seconds.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HUB = "10.0.0.254"
NETWORK = "10.0.0.0/24"
# A bucket smaller than a packet: the queue drops all that it is given. Needs neither nft nor sch_netem.
DROP_ALL = ("tbf", "rate", "8bit", "burst", "1", "limit", "1")
SLOW = ("tbf", "rate", "64kbit", "burst", "3000", "latency", "400ms")
NETEM = ("netem", "delay", "80ms", "40ms", "loss", "10%", "reorder", "20%")


class NetworkError(Exception):
    """A command of iproute2 failed."""


def command(*words: str) -> str:
    """Run a program to its end and return its output; raise with its message if it fails."""
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NetworkError(f"{' '.join(words)}: {result.stderr.strip()}")
    return result.stdout


def prepare_hub() -> None:
    """Make the harness's own namespace the router; it must already be separate from the machine's network."""
    for words in ("link set lo up", f"addr add {HUB}/32 dev lo"):
        command("ip", *words.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def has_netem() -> bool:
    """Return whether the kernel can delay, lose and reorder packets."""
    try:
        command("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except NetworkError:
        return False
    command("tc", "qdisc", "del", "dev", "lo", "root")
    return True


@dataclass(frozen=True, slots=True)
class Namespace:
    """One machine's network: its name, its addresses and the hub's end of its link."""

    name: str
    number: int
    addresses: Sequence[str]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def hub_device(self) -> str:
        return f"v{self.number}"

    def create(self) -> None:
        near, far = (f"02:77:0{end}:00:00:{self.number:02x}" for end in (0, 1))
        inside = ("-n", self.name)
        link = ["link", "add", self.hub_device, "address", near, "type", "veth"]
        command("ip", "netns", "add", self.name)
        command("ip", *link, "peer", "name", "eth0", "address", far, "netns", self.name)
        for device, place in (("lo", inside), ("eth0", inside), (self.hub_device, ())):
            command("ip", *place, "link", "set", device, "up")
        for address in self.addresses:
            command("ip", *inside, "addr", "add", f"{address}/32", "dev", "eth0")
            command("ip", "route", "add", f"{address}/32", "dev", self.hub_device)
            permanent(address, far, self.hub_device)
        command("ip", *inside, "route", "add", f"{HUB}/32", "dev", "eth0")
        command("ip", *inside, "route", "add", "default", "via", HUB, "src", self.address)
        permanent(HUB, near, "eth0", *inside)

    def entered_by(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a program here; `ip` replaces itself, so its pid is the program's."""
        return ["ip", "netns", "exec", self.name, *words]

    @contextmanager
    def shaped(self, queue: Sequence[str], *, incoming: bool, outgoing: bool) -> Iterator[None]:
        """Put a queue discipline on one or both directions of the link, for as long as the block runs."""
        devices = [("tc",)] * incoming + [("tc", "-n", self.name)] * outgoing
        names = [self.hub_device] * incoming + ["eth0"] * outgoing
        pairs = list(zip(devices, names, strict=True))
        try:
            for program, device in pairs:
                command(*program, "qdisc", "replace", "dev", device, "root", *queue)
            yield
        finally:
            for program, device in pairs:
                with suppress(NetworkError):
                    command(*program, "qdisc", "del", "dev", device, "root")


def permanent(address: str, mac: str, device: str, *place: str) -> None:
    words = ["neigh", "replace", address, "lladdr", mac, "dev", device, "nud", "permanent"]
    command("ip", *place, *words)
