"""A chain of pairs under random faults: what is confirmed at one end comes once at the other, in order."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from broker.model.values import Position
from tests.ha.federation.nets import Net
from tests.ha.pair import Host, raw

if TYPE_CHECKING:
    from broker.model.vhost.vhost import VirtualHost

SEEDS = int(os.environ.get("FEDERATION_SEEDS", "3"))
FAULTS = 6
SENT = 120


class Chaos:
    """`top` is given to by `giver`, and `leaf` takes from `top`; in every other seed from `giver`, too, so
    that messages come by two ways. Messages are numbered, and published at `giver` or `top`. One that was not
    confirmed is sent again, as by a client. Its key also says which attempt it is."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.net = net = self.make_net()
        net.up()
        net.exchange("giver", "top", "leaf")
        net.queue("leaf", "q", "k.#")
        net.federate("leaf", "top")
        net.federate("giver", "top", consume_mode="none", forward_mode="all")
        net.runs("leaf", "top")
        net.runs("giver", "top")
        if seed % 2:
            net.federate("leaf", "giver")
            net.runs("leaf", "giver")
        self.source = self.rng.choice(("giver", "top"))
        self.confirmed: set[int] = set()
        self.sent: dict[int, tuple[Host, int, Position]] = {}
        self.next = self.attempts = 0

    def make_net(self) -> Net:
        return Net(giver=2, top=2, leaf=2)

    def told(self, number: int) -> None:
        """That one is confirmed."""

    def send(self, vhost: VirtualHost, key: str, number: int) -> None:
        route = vhost.route("x", key)
        vhost.publish(
            route, [raw(chr(48 + number % 10))], persistent=True, channel=1, largest_frame=22
        )  # fmt: skip

    def publish(self) -> None:
        """The next one, once the one before is confirmed; again, where its broker has gone meanwhile."""
        serving = [h for h in self.net.nodes[self.source] if h.node is not None and h.running.vhosts.serving]
        for number, (host, life, position) in list(self.sent.items()):
            alive = host.node is not None and id(host.node) == life and host in serving
            if alive and self.net.confirmed(host, position):
                del self.sent[number]
                self.confirmed.add(number)
                self.told(number)
            elif not alive:
                del self.sent[number]
                self.next = min(self.next, number)
        open_ = serving and not serving[0].running.broker.input_paused
        if open_ and not self.sent and self.next < SENT:
            host = serving[0]
            vhost = host.running.vhost
            self.attempts += 1
            self.send(vhost, f"k.{self.next}.{self.attempts}", self.next)
            self.sent[self.next] = host, id(host.node), vhost.history.position
            self.next += 1

    def fault(self) -> None:
        """One failure at a time in each pair; between pairs as many as come."""
        net, rng = self.net, self.rng
        node = rng.choice(list(net.nodes))
        match rng.choice(("kill", "kill", "behind", "switch", "cut", "reset")):
            case "kill" if self.is_whole(node):
                self.kill(node)
            case "behind" if self.is_whole(node):
                self.fall_behind(node)
            case "switch":
                serving = [h for h in net.nodes[node] if h.node is not None and h.running.vhosts.serving]
                if serving:
                    serving[0].running.manage("switchover", {}, lambda answer: None, net.now)
            case "cut" | "reset" as kind:
                one, other = (rng.choice(net.nodes[each]) for each in rng.sample(list(net.nodes), 2))
                net.separate(one, other, reset=kind == "reset" and None not in (one.node, other.node))

    def is_whole(self, node: str) -> bool:
        members = self.net.nodes[node]
        return all(h.node is not None and h.status in ("active", "ready") for h in members)

    def fall_behind(self, node: str) -> None:
        """Nothing reaches the backup for a while, and meanwhile the lines to all other pairs break. Then the
        primary may die, or hand over."""
        net = self.net
        serving, backup = sorted(net.nodes[node], key=lambda h: not h.running.vhosts.serving)
        net.hold(serving, backup)
        if self.rng.random() < 0.5:
            serving.running.manage("switchover", {}, lambda answer: None, net.now)
        self.step(self.rng.random() * 0.2)
        for other in net.hosts:
            if other not in net.nodes[node] and other.node is not None:
                net.reset(serving, other)
        self.step(self.rng.random())
        if self.rng.random() < 0.5 and self.is_whole(node):
            self.kill(node)
        net.held.clear()

    def kill(self, node: str) -> None:
        net = self.net
        serving, backup = sorted(net.nodes[node], key=lambda h: not h.running.vhosts.serving)
        victim = self.rng.choice((serving, backup))
        net.kill(victim, keep=self.rng.random() < 0.5)
        self.step(self.rng.random() * 0.3)
        if victim is serving:
            backup.running.manage("promote", {}, lambda answer: None, net.now)
            self.step(0.3)
        net.start(victim)

    def step(self, seconds: float) -> None:
        end = self.net.now + seconds
        while self.net.now < end:
            self.publish()
            self.net.step()
            self.net.now += 0.005

    def run(self) -> None:
        for _ in range(FAULTS):
            self.step(self.rng.choice((0.05, 0.3, 2.0)) * self.rng.random())
            self.fault()
        self.net.heal()
        for members in self.net.nodes.values():
            self.whole(members)
        limit = self.net.now + 60
        while len(self.confirmed) < SENT:
            assert self.net.now < limit, [h.log[-3:] for h in self.net.hosts]
            self.step(0.1)

    def whole(self, members: list[Host]) -> None:
        limit = self.net.now + 60
        while sorted(h.status for h in members) != ["active", "ready"]:
            assert self.net.now < limit, [h.log[-6:] for h in members]
            if not any(h.running.vhosts.serving for h in members):
                for host in members:
                    host.running.manage("promote", {}, lambda answer: None, self.net.now)
            self.step(0.2)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_confirmed_message_comes_once_and_in_order(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.run()
    net = chaos.net

    def found() -> list[tuple[int, int]]:
        """Number and attempt of each; none during a switchover."""
        serving = [h for h in net.nodes["leaf"] if h.running.vhosts.serving]
        entries = serving[0].running.vhost.queues["q"].held_entries() if serving else []
        keys = [envelope.routing_key.split(".") for _, envelope, _ in entries]
        return [(int(number), int(attempt)) for _, number, attempt in keys]

    net.until(lambda: {number for number, _ in found()} == chaos.confirmed, limit=60.0)
    net.run(1.0)
    assert len(set(found())) == len(found()), f"seed {seed}: twice: {found()}"
    assert found() == sorted(found()), f"seed {seed}: out of order: {found()}"
    assert net.waiting("top", "leaf") == net.waiting("giver", "leaf") == 0
