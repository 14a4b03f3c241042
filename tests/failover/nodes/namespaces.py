"""A network for real nodes, each in a namespace of its own, with partitions between them.

    hub: a bridge with 198.51.100.254, where the clients are
    NODE: eth0 with 198.51.100.1, .2, ..., plugged into that bridge; with two networks, also eth1 with
          198.51.100.129, .130, ..., plugged into a bridge of the nodes alone

Everything lies inside namespaces that carry this process's id in their names; the machine's own network is
not touched, and all of it goes when the `Lab` ends. Needs root and `ip` (iproute2); `nft` (nftables) is used
where it is there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.failover.nodes.cluster import Login, Place
from understudy.shared.addresses import HostPort

HUB_ADDRESS = "198.51.100.254"
PORT = 5672
LOGIN = Login("lab", "lab")
SETTINGS = (
    # The cheapest hash of "lab" that is one: the broker's thread is not to spend its time on it.
    "auth.users.lab.password=$argon2id$v=19$m=8,t=1,p=1$aMcqIZG7xA71v6X1BILIug"
    "$64iZ1BAQSQC9i/XYeEmV8MngkfnPrivNemtH07NYV1I",
    "auth.users.lab.tags=administrator",
    "auth.allow_plain_without_tls=true",
    "ha.password=lab",
)
"""What a node needs that is not on loopback."""
_CLONE_NEWNET = 0x40000000
_PREFIX = os.environ.get("UNDERSTUDY_TEST_NAMESPACES", "understudy-test-")
_NOBODY = "02:00:00:00:00:01"
"""A hardware address that no interface of the lab has."""
_TABLE = "add table inet cut; add chain inet cut in { type filter hook input priority 0; };"
_TABLE += " add chain inet cut out { type filter hook output priority 0; };"


def why_not() -> str:
    """Why there can be no lab here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}` here (packages iproute2, util-linux)"
    try:
        with Lab(["probe"]):
            return ""
    except AssertionError as error:
        return " ".join(str(error).split())


class Lab:
    """Namespaces for these nodes. A context manager."""

    def __init__(self, names: Sequence[str], *, nft: bool | None = None, networks: int = 1) -> None:
        """`nft`: drop by rules of nftables; else by wrong hardware addresses, which needs `ip` only. None:
        by rules where there is an `nft`. `networks`: 1 or 2.
        """
        self._networks = networks
        self._names = list(names)
        self._hub = self._namespace("hub")
        self._nft = shutil.which("nft") is not None if nft is None else nft

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, name: str, network: int = 0) -> str:
        return f"198.51.100.{128 * network + self._names.index(name) + 1}"

    def places(self) -> dict[str, Place]:
        return {
            name: Place(HostPort(self.address(name), PORT), ("nsenter", f"--net={self._path(name)}"))
            for name in self._names
        }

    @contextmanager
    def inside(self, name: str = "hub") -> Iterator[None]:
        """This thread, and those and the processes that it starts meanwhile, are there."""
        with open("/proc/thread-self/ns/net") as before, open(self._path(name)) as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    # -- faults

    def drop(self, source: str, target: str, network: int = 0) -> None:
        """Nothing gets from node `source` to node `target` on that network; the other way it does."""
        if self._nft:
            self._rule(target, f"add rule inet cut in ip saddr {self.address(source, network)} drop")
        else:
            nowhere = ("lladdr", _NOBODY, "dev", f"eth{network}", "nud", "permanent")
            at = self.address(target, network)
            _ip("-n", self._namespace(source), "neighbour", "replace", at, *nowhere)

    def isolate(self, name: str) -> None:
        """Nothing gets to or from this node, clients included."""
        if self._nft:
            rules = 'add rule inet cut in iifname "eth0" drop; add rule inet cut out oifname "eth0" drop'
            self._rule(name, rules)
        else:
            _ip("-n", self._hub, "link", "set", f"to-{name}", "nomaster")

    def heal(self) -> None:
        for name in self._names:
            if self._nft:
                self._rule(name, "flush table inet cut")
            else:
                for network in range(self._networks):
                    device = f"eth{network}"
                    _ip("-n", self._namespace(name), "neighbour", "flush", "nud", "permanent", "dev", device)
                _ip("-n", self._hub, "link", "set", f"to-{name}", "master", "bridge")

    # -- pieces

    def _build(self) -> None:
        _sweep()
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "set", "lo", "up")
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "address", "add", f"{HUB_ADDRESS}/24", "dev", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for name in self._names:
            space = self._namespace(name)
            _ip("netns", "add", space)
            end = ("type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", self._hub, "link", "add", f"to-{name}", *end)
            _ip("-n", self._hub, "link", "set", f"to-{name}", "master", "bridge", "up")
            _ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", space, "link", "set", device, "up")
            if self._networks > 1:
                self._second(name, space)
            if self._nft:
                self._rule(name, _TABLE)

    def _second(self, name: str, space: str) -> None:
        """Plug the node into the second bridge, whose addresses are a narrow part of the first network's."""
        if name == self._names[0]:
            _ip("-n", self._hub, "link", "add", "bridge1", "type", "bridge")
            _ip("-n", self._hub, "link", "set", "bridge1", "up")
        end = ("type", "veth", "peer", "name", "eth1", "netns", space)
        _ip("-n", self._hub, "link", "add", f"on-{name}", *end)
        _ip("-n", self._hub, "link", "set", f"on-{name}", "master", "bridge1", "up")
        _ip("-n", space, "address", "add", f"{self.address(name, 1)}/28", "dev", "eth1")
        _ip("-n", space, "link", "set", "eth1", "up")

    def _remove(self) -> None:
        """The links go with the namespaces; a process that is still in one keeps it alive until it ends."""
        for name in (*self._names, "hub"):
            if Path(self._path(name)).exists():
                subprocess.run(["ip", "netns", "delete", self._namespace(name)], capture_output=True)

    def _namespace(self, name: str) -> str:
        return f"{_PREFIX}{os.getpid()}-{name}"

    def _path(self, name: str) -> str:
        return f"/run/netns/{self._namespace(name)}"

    def _rule(self, name: str, rules: str) -> None:
        _run("nsenter", f"--net={self._path(name)}", "nft", rules)


def _sweep() -> None:
    """Remove what a process left behind that was killed before it could."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "delete", path.name], capture_output=True)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")


def _enter(namespace: int) -> None:
    """setns(2) of this thread, for Python before 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
