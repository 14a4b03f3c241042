"""Random clients with transactions, compared with a model of each queue's messages and each channel's
outstanding ones.

Steps are publishes, gets, all kinds of ack, commits, rollbacks, closes, and queues deleted and declared
again.
"""

from __future__ import annotations

from bisect import insort
from itertools import count
from random import Random
from typing import NamedTuple

from tests.broker.amqp091.transacting import transacting
from tests.broker.amqp091.wire import World

QUEUES = ("a", "b", "c")
RUNS = 120
STEPS = 100

Place = tuple[str, int]
"""A queue name, and a number that tells queues of the same name apart."""


class Message(NamedTuple):
    sequence: int
    body: bytes


Got = tuple[Place, Message]


class Side:
    """The model of one channel."""

    def __init__(self, world: World) -> None:
        self.client = transacting(world)
        self.tag = 0
        self.outstanding: dict[int, Got] = {}
        self.published: list[tuple[Place, bytes]] = []
        self.settled: list[tuple[bool, dict[int, Got]]] = []
        """Whether to requeue, and the messages."""

    def undo(self) -> None:
        for _, some in self.settled:
            self.outstanding |= some
        self.published, self.settled = [], []


class Run:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World()
        self.admin = self.world.open()
        self.numbers = count(1)
        self.made = dict.fromkeys(QUEUES, 0)
        self.ready: dict[Place, list[Message]] = {}
        self.sequence: dict[Place, int] = {}
        for queue in QUEUES:
            self._declare(queue)
        self.sides = [Side(self.world) for _ in range(3)]

    def _declare(self, queue: str) -> None:
        self.admin.call(1, "queue.declare", queue=queue)
        self.made[queue] += 1
        place = queue, self.made[queue]
        self.ready[place], self.sequence[place] = [], 0

    def _place(self) -> Place:
        queue = self.random.choice(QUEUES)
        return queue, self.made[queue]

    def _back(self, some: dict[int, Got]) -> None:
        for place, message in some.values():
            if place in self.ready:
                insort(self.ready[place], message)

    def step(self) -> None:
        names = ("publish", "get", "settle", "commit", "rollback", "end", "recover", "renew")
        (name,) = self.random.choices(names, (30, 25, 20, 10, 8, 3, 2, 2))
        getattr(self, name)(self.random.choice(self.sides))

    def publish(self, side: Side) -> None:
        place, body = self._place(), b"%d" % next(self.numbers)
        side.client.publish(1, body, routing_key=place[0])
        side.published.append((place, body))

    def get(self, side: Side) -> None:
        place = self._place()
        seen = side.client.call(1, "basic.get", queue=place[0])
        if not self.ready[place]:
            assert seen.name == "basic.get-empty"
            return
        message = self.ready[place].pop(0)
        side.tag += 1
        assert (seen.name, seen.body, seen["delivery_tag"]) == ("basic.get-ok", message.body, side.tag)
        side.outstanding[side.tag] = place, message

    def settle(self, side: Side) -> None:
        if not side.outstanding:
            return
        tag = self.random.choice(sorted(side.outstanding))
        name = self.random.choice(["basic.ack", "basic.nack", "basic.reject"])
        more = {} if name == "basic.reject" else {"multiple": self.random.random() < 0.3}
        requeue = name != "basic.ack" and self.random.random() < 0.5
        if name != "basic.ack":
            more["requeue"] = requeue
        side.client.send(1, name, delivery_tag=tag, **more)
        tags = [t for t in side.outstanding if t == tag or (more.get("multiple") and t < tag)]
        side.settled.append((requeue, {t: side.outstanding.pop(t) for t in tags}))

    def commit(self, side: Side) -> None:
        assert side.client.call(1, "tx.commit").name == "tx.commit-ok"
        for place, body in side.published:
            if place in self.ready:
                self.sequence[place] += 1
                insort(self.ready[place], Message(self.sequence[place], body))
        for requeue, some in side.settled:
            if requeue:
                self._back(some)
        side.published, side.settled = [], []

    def rollback(self, side: Side) -> None:
        assert side.client.call(1, "tx.rollback").name == "tx.rollback-ok"
        side.undo()

    def end(self, side: Side) -> None:
        how = self.random.choice(["close", "lost", "error"])
        if how == "close":
            side.client.send(1, "channel.close", reply_code=200)
        elif how == "error":
            side.client.send(1, "basic.ack", delivery_tag=99_999)
        else:
            side.client.connection.lost(self.world.now)
            self.world.tick()
        side.undo()
        self._back(side.outstanding)
        self.sides[self.sides.index(side)] = Side(self.world)

    def recover(self, side: Side) -> None:
        assert side.client.call(1, "basic.recover", requeue=True).name == "basic.recover-ok"
        self._back(side.outstanding)
        side.outstanding = {}

    def renew(self, side: Side) -> None:
        queue, _ = place = self._place()
        self.admin.call(1, "queue.delete", queue=queue)
        del self.ready[place]
        self._declare(queue)

    def check(self) -> None:
        for queue in QUEUES:
            held = [entry[0] for entry in self.world.vhost.queues[queue].ready]
            assert held == [message.sequence for message in self.ready[queue, self.made[queue]]]
        for side in self.sides:
            assert len(side.client.connection.channels[1].unacked) == len(side.outstanding)
            assert bool(side.client.connection.uncommitted) == bool(side.published)


def test_random_clients_with_transactions_and_the_model_agree(seed: int) -> None:
    for number in range(seed, seed + RUNS):
        run = Run(Random(number))
        for _ in range(STEPS):
            run.step()
            run.check()
