"""Several clusters in one process, federated with each other: each one broker, or a pair."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from broker.security.identity import FEDERATION, User, default_users
from broker.store.node_files import NodeIdentity, RecordFile
from ha.adapter.federation.settings import LOGINS, FederationSettings
from ha.adapter.peering.login import PeeringLogin
from tests.ha.pair import Host, Pair, raw
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

LOGIN, PLAIN = "net", "plain"
"""The latter is that of an ordinary client: what a broker has that knows plain AMQP only."""
USER = User("fed", frozenset({FEDERATION}), password="secret")


class Net(Pair):
    """`Net(hub=2, leaf=1)`: a pair and a broker alone. Hosts are lettered in that order."""

    def __init__(self, settings: dict[str, Any] | None = None, **sizes: int) -> None:
        super().__init__(sum(sizes.values()), dequeue_lag=0.0, **(settings or {}))
        hosts = iter(self.hosts)
        self.nodes: dict[str, list[Host]] = {
            name: [next(hosts) for _ in range(n)] for name, n in sizes.items()
        }
        for name, members in self.nodes.items():
            login = PeeringLogin(USER.name, "secret", f"{LOGINS}{LOGIN}")
            plain = PeeringLogin("guest", "guest", f"{LOGINS}{PLAIN}")
            logins = {LOGIN: login, PLAIN: plain}
            addresses = tuple(f"127.0.0.1:{host.port}" for host in members)
            for host in members:
                host.settings = {"federation": FederationSettings(name, logins, addresses)}
                host.users = (*default_users(), USER)

    def brokers(self, host: Host) -> list[tuple[str, int]]:
        members = next(members for members in self.nodes.values() if host in members)
        return [("127.0.0.1", member.port) for member in members] if len(members) > 1 else []

    def up(self) -> None:
        """All run; the first of each pair serves."""
        self.start()
        self.run(0.3)
        for members in self.nodes.values():
            if len(members) > 1:
                answer = self.ask(members[0], "promote")
                assert answer["ok"], answer
                self.until(lambda: all(h.status == "ready" for h in members[1:]))  # noqa: B023

    def serving(self, node: str) -> Host:
        return next(h for h in self.nodes[node] if h.node is not None and h.running.vhosts.serving)

    def exchange(self, *nodes: str, name: str = "x", kind: str = "topic", **more: Any) -> None:
        for node in nodes:
            self.serving(node).running.vhost.declare_exchange(name, kind, durable=True, **more)
        self.run(0.05)

    def queue(self, node: str, name: str, *keys: str, exchange: str = "x", **arguments: Any) -> None:
        """A queue that is bound to the exchange with those keys."""
        host = self.serving(node)
        self.declare(host, name, arguments=arguments or None)
        for key in keys:
            host.running.vhost.bind_queue(name, exchange, key, owner=self)
        self.run(0.05)

    def define(self, host: Host, *changes: dict[str, Any]) -> dict[str, Any]:
        return self.ask(host, "define", changes=list(changes))

    def federate(
        self, node: str, upstream: str, exchange: str = "x", plain: bool = False, **more: Any
    ) -> None:  # fmt: skip
        """An agent at `node` takes from `upstream`. `plain`: as from a broker that is no node."""
        host = self.serving(node)
        addresses = [f"127.0.0.1:{member.port}" for member in self.nodes[upstream]]
        answer = self.define(
            host,
            entry(
                "federation-upstream",
                upstream,
                addresses=addresses,
                login=PLAIN if plain else LOGIN,
                **({"protocol": "amqp"} if plain else {}),
            ),
            agent(exchange, upstream, **more),
        )
        assert answer["ok"], answer

    def line(self, node: str, upstream: str, exchange: str = "x") -> dict[str, Any]:
        """What `understudy federate list` says of that agent."""
        lines = self.serving(node).running.status()["federation"]["agents"]
        found = [line for line in lines if (line["exchange"], line["upstream"]) == (exchange, upstream)]
        assert len(found) == 1, lines
        line = found[0]
        assert isinstance(line, dict)
        return line

    def runs(self, node: str, upstream: str, exchange: str = "x") -> None:
        self.until(lambda: self.line(node, upstream, exchange)["state"] == "running")

    def send(self, node: str, key: str, texts: str, *, exchange: str = "x", persistent: bool = True) -> None:
        """One message for each letter, with publisher confirms left out."""
        vhost = self.serving(node).running.vhost
        vhost.publish(
            vhost.route(exchange, key), [raw(text) for text in texts], persistent=persistent, channel=1,
            largest_frame=22,
        )  # fmt: skip

    def content(self, node: str, queue: str) -> str:
        host = self.serving(node)
        return self.contents(host, queue) if queue in host.running.vhost.queues else ""

    def gets(self, node: str, queue: str, texts: str, limit: float = 20.0) -> None:
        """Wait until that is what the queue holds, in this order; and nothing more comes."""
        self.until(lambda: len(self.content(node, queue)) >= len(texts), limit)
        self.run(0.3)
        assert self.content(node, queue) == texts

    def cursors(self, node: str, exchange: str = "x") -> list[str]:
        """Names of the entries that say how far messages for that exchange are taken."""
        names = [name for _, name in self.serving(node).running.vhosts.directory.cursors]
        return [name for name in names if name.startswith(f"{exchange}@")]

    def waiting(self, node: str, downstream: str, exchange: str = "x") -> int:
        """Messages in the link queue for that node."""
        queue = self.serving(node).running.vhost.queues.get(f"amq.link.{exchange}@{downstream}")
        return queue.total_count if queue is not None else 0


def entry(kind: str, name: str, *, vhost: str = "/", action: str = "put", **value: Any) -> dict[str, Any]:
    return {"action": action, "kind": kind, "vhost": vhost, "name": name, "value": value}


def agent(exchange: str, upstream: str, **more: Any) -> dict[str, Any]:
    value = {"exchange": exchange, "upstream": upstream, "consume-mode": "all"}
    value |= {key.replace("_", "-"): item for key, item in more.items()}
    return entry("federation-agent", f"{exchange}@{upstream}", **value)


def restore(host: Host, copy: dict[str, bytes], epoch: int, node_id: str) -> None:
    """As `understudy restore` does: the segments of the copy, a new id, no cluster, the epoch of the
    copy. Without segments it is a broker made anew."""
    disk = host.disk = VirtualDisk()
    disk.make_directory(f"/{host.name}")
    disk.make_directory(f"/{host.name}/store")
    for path, data in copy.items():
        if path.endswith(".segment"):
            disk.place(path, data)
    identity = NodeIdentity(node_id, host.name, None, 0, 1)
    RecordFile(disk, f"/{host.name}", "node.json").save(asdict(identity) | {"epoch": epoch})
