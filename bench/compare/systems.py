"""The brokers that are compared: RabbitMQ as one node and as three, Understudy alone and as a pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bench import brokers
from bench.compare import rabbitmq
from bench.compare.certificates import Files


class Running(Protocol):
    """A system that takes loads."""

    def close(self) -> None:
        """End all of its processes, and remove its folders."""


@dataclass(slots=True, frozen=True)
class System:
    """One column of bars."""

    name: str
    title: str
    against: str | None
    """The system that its ratio is taken to."""
    quorum: bool
    """Its queues are of type quorum: durable, whatever the row says."""
    start: Callable[[Files], Started]


@dataclass(slots=True)
class Started:
    """A running system: where to connect, and whose CPU time counts."""

    port: int
    tls_port: int
    pids: list[int]
    running: Running

    def close(self) -> None:
        self.running.close()


def _rabbitmq(count: int, files: Files) -> Started:
    nodes = rabbitmq.start(count, files)
    return Started(nodes.ports[0], nodes.tls_ports[0], nodes.pids(), nodes)


def _understudy(cluster: brokers.Cluster) -> Started:
    """CPU time is the primary's."""
    primary = cluster.brokers[0]
    assert primary.tls is not None
    return Started(primary.port, primary.tls, [primary.process.pid], cluster)


def _alone(files: Files) -> Started:
    return _understudy(brokers.alone(*files.understudy(), tls=True))


def _pair(files: Files) -> Started:
    return _understudy(brokers.pair(*files.understudy(), tls=True))


SYSTEMS = [
    System("rabbitmq", "RabbitMQ, one node", None, False, partial(_rabbitmq, 1)),
    System("understudy", "Understudy alone", "rabbitmq", False, _alone),
    System("rabbitmq-quorum", "RabbitMQ, quorum of three", None, True, partial(_rabbitmq, 3)),
    System("understudy-pair", "Understudy pair", "rabbitmq-quorum", False, _pair),
]
