"""Generates whole histories of clusters from a seed: failovers, exclusions, restarts, redeliveries, no fault.

`History(Plan.draw(seed))` is correct, so its verdict is *proven*. `plant` spoils it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import groupby

from tests.spark.histories.cluster import Cluster, Consumer, Id, Node, Producer
from tests.spark.histories.ledgers import Ledgers

HOUR_US = 3_600_000_000
LARGE = 20_000
"""Number of messages in every fiftieth history."""
KINDS = ("switchover", "crash", "forced")
FATES = ("expired", "dropped", "rejected", "purged")
ENDS = ("deleted", "queue-expired", "queue-unused", "owner-gone")


@dataclass(frozen=True)
class Plan:
    """The parameters of a history. The same plan gives the same history."""

    seed: int
    messages: int
    brokers: int
    producers: int
    consumers: int
    queues: int
    failovers: tuple[str, ...]
    skew: str
    """`small` (below 0.1 s) or `hours`."""

    @classmethod
    def draw(cls, seed: int, messages: int | None = None) -> Plan:
        rng = random.Random(seed)
        size = rng.choice((300, 600, 1000, 2000, 3000))
        size = messages or (LARGE if seed % 50 == 49 else size)
        failovers = tuple(rng.choice(KINDS) for _ in range(rng.randint(0, 3)))
        return cls(
            seed, size, rng.randint(2, 3), rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 5), failovers,
            rng.choice(("small", "small", "hours")),
        )  # fmt: skip


class History:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed ^ 0x5EED)
        self.cluster = Cluster(self.rng, plan.brokers, plan.producers, plan.consumers, plan.queues)
        self.gone: list[Node] = []
        """Nodes that are not in sync, dead or alive."""
        self.tell()
        self.set_clocks()

    @property
    def ledgers(self) -> Ledgers:
        return self.cluster.ledgers

    # -- the course of events

    def tell(self) -> None:
        c = self.cluster
        c.open_all()
        self.gone = [node for node in c.nodes if node is not c.primary]
        due = [
            self.plan.messages * (k + 1) // (len(self.plan.failovers) + 1)
            for k in range(len(self.plan.failovers))
        ]
        failovers = list(zip(due, self.plan.failovers, strict=True))
        while (sent := sum(p.logical for p in c.producers)) < self.plan.messages:
            if failovers and sent >= failovers[0][0]:
                self.fail_over(failovers.pop(0)[1])
            self.tick()
        for _, kind in failovers:
            self.fail_over(kind)
        self.end()

    def tick(self) -> None:
        c, rng = self.cluster, self.rng
        for producer in c.producers:
            if rng.random() < 0.7:
                self.publish(producer)
        c.replicate(lag=rng.random() < 0.3)
        for consumer in c.consumers:
            self.consume(consumer)
        for chance, happening in (
            (0.25, self.come_back), (0.05, self.redeliver), (0.06, self.leave_queue), (0.03, self.redeclare),
            (0.04, self.dead_letter), (0.04, self.publish_unnamed), (0.03, self.evict),
            (0.03, self.kill_backup), (0.02, self.reconnect), (0.02, self.restart_client), (0.05, self.pause),
        ):  # fmt: skip
            if rng.random() < chance:
                happening()

    def publish(self, producer: Producer) -> None:
        c, rng = self.cluster, self.rng
        kind = rng.random()
        if kind < 0.15:
            sizes = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
            batches = [c.send(producer, n, self.route(), rng.random() < 0.6) for n in sizes]
            c.arrive(producer, batches, commit=True)
        elif kind < 0.19:
            c.refuse(producer, c.send(producer, rng.randint(1, 5), self.route(), False), "nacked")
        elif kind < 0.23:
            c.refuse(producer, c.send(producer, rng.randint(1, 5), len(c.routes) - 1, False), "returned")
        else:
            c.arrive(producer, [c.send(producer, rng.randint(1, 30), self.route(), rng.random() < 0.6)])

    def route(self) -> int:
        return self.rng.randrange(len(self.cluster.routes))

    def consume(self, consumer: Consumer) -> None:
        c, rng = self.cluster, self.rng
        if rng.random() < 0.8:
            c.deliver(consumer, rng.randint(1, 40))
        if consumer.unacked and rng.random() < 0.7:
            c.acknowledge(consumer, rng.randint(1, len(consumer.unacked)))

    # -- single events

    def free(self, name: str) -> list[Id]:
        """Ids in a queue that no consumer holds."""
        c = self.cluster
        held = {i for consumer in c.consumers if consumer.queue == name for i in consumer.unacked}
        return [i for i in sorted(c.primary.contents[c.queues[name]]) if i not in held]

    def redeliver(self) -> None:
        """A channel closes: its unacked messages return to the queue, and are flagged next time."""
        self.rng.choice(self.cluster.consumers).unacked.clear()

    def leave_queue(self) -> None:
        c, name = self.cluster, self.rng.choice(list(self.cluster.queues))
        if ids := self.free(name)[: self.rng.randint(1, 12)]:
            c.take(c.queues[name], ids, self.rng.choice(FATES))

    def dead_letter(self) -> None:
        c, name = self.cluster, self.rng.choice(list(self.cluster.queues))
        if ids := self.free(name)[: self.rng.randint(1, 4)]:
            entry = c.append()
            c.put(entry, "q0", len(ids), None, None, False)
            c.take(c.queues[name], ids, "dead-lettered", entry)

    def redeclare(self) -> None:
        """Delete a queue with its messages, and declare another one of the same name."""
        c, name = self.cluster, self.rng.choice(list(self.cluster.queues))
        if ids := sorted(c.primary.contents[c.queues[name]]):
            c.take(c.queues[name], ids, self.rng.choice(ENDS))
        for consumer in c.consumers:
            if consumer.queue == name:
                consumer.unacked.clear()
        c.queues[name] = self.rng.randbytes(16).hex()
        c.define(name)

    def publish_unnamed(self) -> None:
        """A publisher without identity publishes: no session, no ledger."""
        c = self.cluster
        c.put(c.append(), self.rng.choice(list(c.queues)), self.rng.randint(1, 8), None, None, False)

    def evict(self) -> None:
        """A backup is slow: confirms wait until it is excluded."""
        c = self.cluster
        if c.ready:
            node = self.rng.choice(c.ready)
            self.stall()
            c.exclude(node)
            self.gone.append(node)

    def kill_backup(self) -> None:
        c = self.cluster
        if c.ready:
            node = self.rng.choice(c.ready)
            self.kill(node)
            self.stall()
            c.exclude(node)
            self.gone.append(node)

    def stall(self) -> None:
        for producer in self.cluster.producers:
            self.cluster.arrive(
                producer, [self.cluster.send(producer, self.rng.randint(1, 8), self.route(), False)]
            )
        self.cluster.now += self.rng.randint(100_000, 1_500_000)

    def kill(self, node: Node) -> None:
        """Kill a node: it loses its memory, and perhaps its last records, on none of which
        anything depends."""
        node.alive = False
        for queue, held in node.contents.items():
            node.contents[queue] = {i: None for i in held if (queue, i) in node.disk}
        records = self.ledgers.records[node.process]
        while records[-1]["kind"] in ("dequeue", "replicated", "heartbeat") and self.rng.random() < 0.3:
            records.pop()

    def come_back(self) -> None:
        """A node that is not in sync gets in sync again, as a new process if it was killed."""
        c = self.cluster
        if not self.gone:
            return
        node = self.gone.pop(self.rng.randrange(len(self.gone)))
        if not node.alive:
            again = replace(node, incarnation=node.incarnation + 1, view=0, alive=True)
            c.nodes[c.nodes.index(node)] = again
            node = again
            c.now += 30_000
            c.note(node, "open", name="broker", reason=c.ledgers.records[c.primary.process][0]["reason"])
        c.replicate()
        c.include(node)

    def reconnect(self, producer: Producer | None = None) -> None:
        """Begin a new session, which first resends the in-doubt messages in order."""
        c = self.cluster
        producer = producer or self.rng.choice(c.producers)
        c.awaiting = [waiting for waiting in c.awaiting if waiting[1] is not producer]
        doubt, producer.pending = sorted(producer.pending.items()), {}
        producer.connection, producer.tag = producer.connection + 1, 0
        for _, group in groupby(
            enumerate(doubt), lambda x: (x[1][1].route, x[1][1].persistent, x[1][0] - x[0])
        ):
            members = [pair for _, pair in group]
            number, old = members[0]
            c.arrive(producer, [c.send(producer, len(members), old.route, old.persistent, number)])

    def restart_client(self) -> None:
        """A client ends cleanly and starts again; a producer forgets what is in doubt.

        A client that ends without a seal would prevent a proof: see `plant_roles.endless`.
        """
        c = self.cluster
        client = self.rng.choice(c.clients)
        role = "consumer" if isinstance(client, Consumer) else "producer"
        if isinstance(client, Consumer):
            client.unacked.clear()
        else:
            c.awaiting = [waiting for waiting in c.awaiting if waiting[1] is not client]
            client.pending.clear()
            client.connection, client.tag = client.connection + 1, 0
        c.note(client, "seal")
        client.incarnation += 1
        c.note(client, "open", name=role, reason="")

    def pause(self, seconds: int | None = None) -> None:
        """Nothing is published for a while: heartbeats only, and the primary makes a consistency
        checkpoint."""
        c = self.cluster
        c.replicate()
        for _ in range((seconds or self.rng.choice((5, 5, 10, 20))) // 5):
            c.now += 5_000_000
            for party in c.living():
                c.note(party, "heartbeat")
        c.quiesce()

    # -- failovers

    def fail_over(self, kind: str) -> None:
        c = self.cluster
        while not c.ready:
            self.come_back()
        old = c.primary
        if kind == "switchover":
            c.replicate()
            successor, why = self.rng.choice(c.ready), "unforced"
            c.note(old, "demote", reason="an operator asked for a switchover")
        else:
            successor, why = self.break_off(kind)
        others = [node for node in c.nodes if node not in (old, successor) and node in c.ready]
        for consumer in c.consumers:
            consumer.unacked.clear()
        c.now += self.rng.randint(200_000, 900_000)
        c.epoch = (c.epoch >> 16) + 1 << 16 | self.rng.randint(1, 9)
        c.take_over(successor, old.name, why)
        if kind == "forced":
            c.now += 1_000_000
            c.note(old, "demote", reason="another node serves a later epoch")
        self.gone = [*(node for node in self.gone if node is not successor), old, *others]
        for producer in c.producers:
            self.reconnect(producer)

    def break_off(self, kind: str) -> tuple[Node, str]:
        """The primary is killed, or is cut off from all others, with various work in progress."""
        c, rng = self.cluster, self.rng
        old = c.primary
        if kind == "forced":
            c.replicate()
            for node in list(c.ready):
                c.exclude(node)
                self.gone.append(node)
            candidates = [node for node in self.gone if node.alive and node.view == c.epoch][-1:]
        else:
            candidates = list(c.ready)
        for producer in c.producers:
            arrived = c.send(producer, rng.randint(1, 12), self.route(), True)
            if rng.random() < 0.8:
                c.arrive(producer, [arrived])
        for node in c.ready:
            if rng.random() < 0.7:
                c.apply(node, rng.randint(node.applied, c.n))
        if rng.random() < 0.7:
            c.sync_disk()
        for consumer in c.consumers:
            c.deliver(consumer, 30)
            c.acknowledge(consumer, rng.randint(0, 20), seen=rng.random() < 0.6)
        if kind == "crash":
            self.kill(old)
        return rng.choice(candidates), "force-lossy" if kind == "forced" else "unforced"

    # -- the end

    def end(self) -> None:
        """Most messages are consumed. All live processes end cleanly and list what they hold."""
        c = self.cluster
        while self.gone and self.rng.random() < 0.8:
            self.come_back()
        for consumer in c.consumers:
            c.deliver(consumer, 100_000 if self.rng.random() < 0.7 else 10)
            c.acknowledge(consumer, len(consumer.unacked))
        self.pause(30)
        c.list_contents("present")
        for party in c.living():
            c.note(party, "seal")

    def set_clocks(self) -> None:
        for party in (*self.cluster.nodes, *self.cluster.clients):
            self.ledgers.skew_us[party.name] = self.rng.randint(-90_000, 90_000)
        if self.plan.skew == "hours":
            unlucky = self.rng.choice(sorted(self.ledgers.skew_us))
            self.ledgers.skew_us[unlucky] += self.rng.choice((-1, 1)) * self.rng.randint(1, 5) * HOUR_US
