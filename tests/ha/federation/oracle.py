"""A net of brokers against one broker with all bindings.

`Oracle(seed)` draws a net, and declares, binds, unbinds and ends things at its nodes, while publishers send
at random nodes, lines break and brokers lose their power. The same bindings are at two brokers alone. A
binding that comes or goes in a phase is there at `most` for all of it, and at `least` for nothing of it. What
`least` has, from nodes that reach a queue, that queue must have; what `most` does not have, it must not. In a
phase in which nothing changes the two are equal.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from broker.model.queue.consumer import Consumer
from broker.model.queue.link import is_link
from broker.model.steps import finish
from tests.ha.federation.graphs import MOST, SHAPES, Edge, draw_graph
from tests.ha.federation.nets import LOGIN, Net, agent, entry
from tests.ha.pair import Host

KINDS = {"t": "topic", "d": "direct", "h": "headers", "f": "fanout"}
"""The exchanges that are federated."""
REFERENCES = ("most", "least")
WORDS, COLOURS = ("a", "b", "c"), ("red", "blue")
PHASES, QUIET, LIMIT = 4, 0.5, 60.0


def message(number: int, colour: str) -> bytes:
    """The frames of a message with a header, and its number as the body."""
    table = b"\x06colourS" + len(colour).to_bytes(4, "big") + colour.encode()
    properties = b"\x20\x00" + len(table).to_bytes(4, "big") + table
    head = b"\0<\0\0" + (8).to_bytes(8, "big") + properties
    return b"\x02\0\1" + len(head).to_bytes(4, "big") + head + b"\xce\x03\0\1\0\0\0\x08%08d\xce" % number


class Idle:
    """A consumer's connection that takes nothing."""

    client = "idle"

    def credit(self, consumer: Consumer) -> int:
        return 0

    def deliver(self, consumer: Consumer, entries: list[Any]) -> None:
        raise AssertionError("delivered without credit")

    def cancelled(self, consumer: Consumer) -> None: ...


@dataclass(slots=True, eq=False)
class Bound:
    """One binding: of a queue with an exchange, by an exchange of its own in between (`by`), or directly."""

    queue: Asked
    exchange: str
    key: str
    arguments: dict[str, Any]
    by: str = ""

    def bind(self, host: Host) -> None:
        vhost, name = host.running.vhost, self.queue.name
        if not self.by:
            vhost.bind_queue(name, self.exchange, self.key, self.arguments, owner=self.queue)
            return
        vhost.declare_exchange(self.by, "fanout", durable=True, auto_delete=True)
        vhost.bind_exchange(self.by, self.exchange, self.key, self.arguments)
        vhost.bind_queue(name, self.by, "", {}, owner=self.queue)

    def unbind(self, host: Host) -> None:
        """An exchange in between ends by itself."""
        source, key, arguments = (self.by, "", {}) if self.by else (self.exchange, self.key, self.arguments)
        host.running.vhost.unbind_queue(self.queue.name, source, key, arguments, owner=self.queue)
        assert self.by not in host.running.vhost.exchanges or not self.by


@dataclass(slots=True, eq=False)
class Asked:
    """A queue at a node. `life`: `durable`, `exclusive`, or `auto-delete`; it is also its connection."""

    node: str
    name: str
    life: str
    bindings: list[Bound] = field(default_factory=list)
    consumer: Consumer = field(default_factory=lambda: Consumer("idle", Idle()))

    def declare(self, host: Host) -> None:
        vhost = host.running.vhost
        queue = vhost.declare_queue(
            self.name, owner=self, durable=True, exclusive=self.life == "exclusive",
            auto_delete=self.life == "auto-delete",
        )  # fmt: skip
        if self.life == "auto-delete":
            vhost.consume(queue, self.consumer)

    def end(self, host: Host) -> None:
        vhost = host.running.vhost
        match self.life:
            case "exclusive":
                vhost.connection_closed(self)
            case "auto-delete":
                vhost.cancel(vhost.queues[self.name], self.consumer)
            case _:
                vhost.delete_queue(self.name, owner=self)


class Oracle:
    """See the module; `run` it."""

    def __init__(self, seed: int, most: int = MOST, shapes: tuple[str, ...] = SHAPES) -> None:
        self.rng = rng = Random(f"{seed}/oracle")
        self.graph = graph = draw_graph(rng, most, shapes)
        self.seed = seed
        self.reach = {node: graph.reach(node) for node in graph.nodes}
        self.net = net = Net(None, **dict.fromkeys((*graph.nodes, *REFERENCES), 1))
        net.up()
        for name, kind in KINDS.items():
            net.exchange(*graph.nodes, *REFERENCES, name=name, kind=kind)
        self.most, self.least = (net.nodes[name][0] for name in REFERENCES)
        self.queues: list[Asked] = []
        self.sent: dict[int, tuple[str, str]] = {}
        """By number: the node and the exchange to which it was published."""
        self.serials = 0
        self._direct: set[tuple[str, str, str, str]] = set()
        """Bindings that were made without an exchange in between. None of them comes again: the brokers alone
        make and end bindings at other times, so that one would stay at one of them, and not at the other."""
        for edge in graph.edges:
            self._join(edge)

    def __str__(self) -> str:
        ways = ", ".join(f"{e.source}{'=>' if e.gives else '->'}{e.target}" for e in self.graph.edges)
        return f"seed {self.seed}, {self.graph.shape}: {ways}"

    def _join(self, edge: Edge) -> None:
        here, there = (edge.source, edge.target) if edge.gives else (edge.target, edge.source)
        mode = {"forward_mode": "all", "consume_mode": "none"} if edge.gives else {}
        port = self.net.nodes[there][0].port
        changes = [
            entry("federation-upstream", there, addresses=[f"127.0.0.1:{port}"], login=LOGIN, routes=False),
            *(agent(exchange, there, max_hops=MOST, **mode) for exchange in KINDS),
        ]
        if any(both.source == edge.target and both.target == edge.source for both in self.graph.edges):
            changes = self._with_both(changes, edge, here, there)
        answer = self.net.define(self.net.serving(here), *changes)
        assert answer["ok"], answer

    def _with_both(
        self, changes: list[dict[str, Any]], edge: Edge, here: str, there: str
    ) -> list[dict[str, Any]]:
        """One agent has both directions, where the two would be at one node."""
        back = next(e for e in self.graph.edges if (e.source, e.target) == (edge.target, edge.source))
        if back.gives == edge.gives:
            return changes
        mode = {"forward_mode": "all", "consume_mode": "all"}
        return [changes[0], *(agent(exchange, there, max_hops=MOST, **mode) for exchange in KINDS)]

    # -- a run

    def run(self) -> None:
        self._phase([partial(self._declare, node) for node in self.graph.nodes], faults=False)
        for _ in range(PHASES):
            self._phase([self._draw() for _ in range(self.rng.randint(2, 8))], faults=True)
            for _ in range(self.rng.randint(3, 10)):
                self._publish(self.rng.choice(self.graph.nodes))
            self._settle()
            self._compare()
            self._check_lines()

    def _phase(self, draws: list[Any], *, faults: bool) -> None:
        """Changes, with publishes in between, until the net is quiet about them. Each draw changes what one
        of the two brokers alone has, and returns what the node does, and what the other of the two does at
        the end."""
        steps = [step for draw in draws if (step := draw()) is not None]
        for act, _ in steps:
            if faults and self.rng.random() < 0.3:
                self._fault()
            for _ in range(self.rng.randint(0, 3)):
                self._publish(self.rng.choice(self.graph.nodes))
            act()
            self.net.run(self.rng.choice((0.0, 0.02, 0.3)))
        for _, after in steps:
            after()
        self.net.heal()
        self._settle()

    def _draw(self) -> Any:
        alive = [queue for queue in self.queues if queue.bindings]
        match self.rng.choice(("declare", "bind", "bind", "unbind", "unbind", "end")):
            case "bind" if alive:
                return partial(self._bind, self.rng.choice(alive))
            case "unbind" if alive:
                return partial(self._unbind, self.rng.choice(alive))
            case "end" if len(alive) > 1:
                return partial(self._end, self.rng.choice(alive))
            case _:
                return partial(self._declare, self.rng.choice(self.graph.nodes))

    def _declare(self, node: str) -> Any:
        self.serials += 1
        life = self.rng.choice(("durable", "durable", "exclusive", "auto-delete"))
        queue = Asked(node, f"q{self.serials}", life)
        self.queues.append(queue)
        bindings = [self._new_binding(queue) for _ in range(self.rng.randint(1, 3))]

        def act(host: Host) -> None:
            queue.declare(host)
            for bound in bindings:
                bound.bind(host)

        act(self.most)
        return partial(self._at, node, act), partial(self._bound, queue, bindings, act)

    def _bind(self, queue: Asked) -> Any:
        if queue not in self.queues:
            return None
        bound = self._new_binding(queue)
        bound.bind(self.most)
        return partial(self._at, queue.node, bound.bind), partial(self._bound, queue, [bound], bound.bind)

    def _bound(self, queue: Asked, bindings: list[Bound], act: Any) -> None:
        if queue in self.queues:
            queue.bindings += bindings
            act(self.least)

    def _unbind(self, queue: Asked) -> Any:
        if queue not in self.queues or not queue.bindings:
            return None
        bound = self.rng.choice(queue.bindings)
        queue.bindings.remove(bound)
        bound.unbind(self.least)
        return partial(self._at, queue.node, bound.unbind), partial(bound.unbind, self.most)

    def _end(self, queue: Asked) -> Any:
        """What it held is not looked into."""
        if queue not in self.queues or not queue.bindings:
            return None
        self.queues.remove(queue)
        queue.end(self.least)
        return partial(self._at, queue.node, queue.end), partial(queue.end, self.most)

    def _new_binding(self, queue: Asked) -> Bound:
        rng, exchange = self.rng, self.rng.choice([*KINDS])
        key = rng.choice(WORDS) + "." + rng.choice(WORDS)
        if exchange == "t":
            key = rng.choice((key, "*." + rng.choice(WORDS), rng.choice(WORDS) + ".#", "#"))
        arguments = {"colour": rng.choice(COLOURS), "x-match": rng.choice(("all", "any"))}
        arguments = arguments if exchange == "h" else {}
        self.serials += 1
        by = f"by{self.serials}" if rng.random() < 0.2 else ""
        direct = queue.name, exchange, key, str(arguments)
        by = by or (f"by{self.serials}" if direct in self._direct else "")
        if not by:
            self._direct.add(direct)
        return Bound(queue, exchange, key, arguments, by)

    def _at(self, node: str, act: Any) -> None:
        act(self.net.nodes[node][0])
        self.net.step()

    # -- messages

    def _publish(self, node: str) -> None:
        host = self.net.nodes[node][0]
        number, exchange = len(self.sent) + 1, self.rng.choice([*KINDS])
        self.sent[number] = node, exchange
        key, colour = f"{self.rng.choice(WORDS)}.{self.rng.choice(WORDS)}", self.rng.choice(COLOURS)
        for at in (host, self.most, self.least):
            vhost = at.running.vhost
            if exchange == "h":
                route = finish(vhost.find_by_headers(exchange, key, {"colour": colour}))
            else:
                route = vhost.route(exchange, key)
            raws = [message(number, colour)]
            vhost.publish(route, raws, persistent=True, channel=1, largest_frame=64)

    def _held(self, host: Host, queue: str) -> list[int]:
        return [int(raw[-9:-1]) for _, _, raw in host.running.vhost.queues[queue].held_entries()]

    def _compare(self) -> None:
        for queue in self.queues:
            got = self._held(self.net.nodes[queue.node][0], queue.name)
            may, must = (
                {n for n in self._held(host, queue.name) if queue.node in self.reach[self.sent[n][0]]}
                for host in (self.most, self.least)
            )
            where = f"{self}: {queue.name} at {queue.node}"
            assert len(got) == len(set(got)), f"{where}: twice: {got}"
            assert must <= set(got), f"{where}: lost: {[(n, self.sent[n]) for n in must - set(got)]}"
            assert set(got) <= may, f"{where}: unasked: {[(n, self.sent[n]) for n in set(got) - may]}"
            by_publisher: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
            for number in got:
                by_publisher[self.sent[number]].append(number)
            assert all(numbers == sorted(numbers) for numbers in by_publisher.values()), f"{where}: {got}"

    def _check_lines(self) -> None:
        """Nothing crossed a line only to be left out at its other end."""
        for node in self.graph.nodes:
            for line in self.net.serving(node).running.status()["federation"]["agents"]:
                assert not line["looped"] and not line["spoilt"], f"{self}: {node}: {line}"

    # -- faults

    def _fault(self) -> None:
        edge = self.rng.choice(self.graph.edges)
        one, other = self.net.nodes[edge.source][0], self.net.nodes[edge.target][0]
        match self.rng.choice(("cut", "reset", "blink", "power")):
            case "cut":
                self.net.separate(one, other)
            case "reset":
                self.net.separate(one, other, reset=True)
            case "blink":
                self.net.reset(one, other)
            case _:
                self._lose_power(edge.target)

    def _lose_power(self, node: str) -> None:
        """Its exclusive queues end, and those that consumers held; what else it has is on its disk."""
        host = self.net.nodes[node][0]
        if any(queue.node == node and queue.life != "durable" for queue in self.queues):
            return
        self.net.run(0.1)
        self.net.kill(host)
        self.net.run(self.rng.choice((0.0, 0.5)))
        self.net.start(host)
        self.net.until(lambda: host.running.vhosts.serving)

    # -- quiet

    def _settle(self) -> None:
        """All agents run, and for a while nothing becomes history anywhere."""
        limit, before = self.net.now + LIMIT, None
        while True:
            now = self._stand()
            if now == before and now is not None:
                break
            assert self.net.now < limit, f"{self}: not quiet: {self._complaints()}"
            before = now
            self.net.run(QUIET)
        waiting = {name: count for name, count in self._links().items() if count}
        assert not waiting, f"{self}: link queues: {waiting}"

    def _stand(self) -> list[Any] | None:
        if self._complaints():
            return None
        hosts = [self.net.nodes[node][0] for node in self.graph.nodes]
        return [host.running.vhost.history.position for host in hosts]

    def _complaints(self) -> list[str]:
        return [
            f"{node} {line['exchange']}@{line['upstream']}: {line['state']} {line['reason']}"
            for node in self.graph.nodes
            for line in self.net.serving(node).running.status()["federation"]["agents"]
            if line["state"] != "running" or line["reason"]
        ]

    def _links(self) -> dict[tuple[str, str], int]:
        return {
            (node, name): queue.total_count
            for node in self.graph.nodes
            for name, queue in self.net.serving(node).running.vhost.queues.items()
            if is_link(name)
        }
