"""The lines between clusters: slow, and down at times. Each cluster has a network of its own besides."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.network import Address, End, Network, Socket
from tests.simulation.harness.plan import NetworkPlan

Accept = Callable[[End], Socket | None]


class Wan(Network):
    """Of a host `A` of the cluster `hub` the name here is `hub.A`. `places`: the cluster at each address."""

    def __init__(self, clock: Clock, plan: NetworkPlan, random: Callable[[str], Random]) -> None:
        super().__init__(clock, plan, random)
        self.places: dict[Address, str] = {}


class ClusterNetwork(Network):
    """The network of one cluster. Its hosts are on the lines to other clusters, too."""

    def __init__(
        self, clock: Clock, plan: NetworkPlan, random: Callable[[str], Random], cluster: str, wan: Wan
    ) -> None:
        super().__init__(clock, plan, random)
        self.cluster = cluster
        self.wan = wan

    def listen(self, address: Address, accept: Accept, host: str = "") -> None:
        super().listen(address, accept, host)
        if self.wan.places.get(address) == self.cluster:
            self.wan.listen(address, accept, f"{self.cluster}.{host}")

    def unlisten(self, address: Address) -> None:
        super().unlisten(address)
        self.wan.unlisten(address)

    def power(self, host: str, up: bool) -> None:
        super().power(host, up)
        self.wan.power(f"{self.cluster}.{host}", up)

    def connect(
        self, name: str, address: Address, connected: Callable[[End], Socket], failed: Callable[[str], None],
        host: str | None = None,
    ) -> None:  # fmt: skip
        if self.wan.places.get(address, self.cluster) == self.cluster:
            super().connect(name, address, connected, failed, host)
        else:
            here = f"{self.cluster}.{host or name}"
            self.wan.connect(f"{name} of {self.cluster}", address, connected, failed, here)
