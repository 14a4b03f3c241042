"""The brokers that are compared: RabbitMQ as one node and as three, Understudy alone and as a pair."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bench import brokers
from bench.compare import modules, rabbitmq
from bench.compare.certificates import Files
from bench.compare.modules import Modules
from bench.compare.rows import Row


class Running(Protocol):
    """A system that takes loads."""

    def close(self) -> None:
        """End all of its processes, and remove its folders."""


@dataclass(slots=True, frozen=True)
class System:
    """One kind of broker, or two that replicate."""

    name: str
    title: str
    start: Callable[[Files], Started]
    replicated: bool = False
    quorum: bool = False
    """Its queues are of type quorum: durable, whatever the row says."""
    address: str = "{}"
    """Of a queue in AMQP 1.0."""
    only: str = ""
    """A pattern: the loads that it is for."""

    def offers(self, row: Row) -> bool:
        """Whether the load is for it."""
        if row.link and not self.replicated:
            return False
        return (row.quorum or not self.quorum) and bool(re.search(self.only, row.name))


@dataclass(slots=True)
class Started:
    """A running system: where to connect, and whose CPU time counts."""

    port: int
    tls_port: int
    pids: list[int]
    running: Running
    link: tuple[list[int], list[int]] | None = None
    """The processes of the loaded node, and of the others: octets from the first to the second count."""
    http: int | None = None

    def close(self) -> None:
        self.running.close()


def _rabbitmq(count: int, files: Files) -> Started:
    nodes = rabbitmq.start(count, files)
    link = (nodes.pids(0), [pid for at in range(1, count) for pid in nodes.pids(at)]) if count > 1 else None
    return Started(nodes.ports[0], nodes.tls_ports[0], nodes.pids(), nodes, link)


def understudy(cluster: brokers.Cluster) -> Started:
    """CPU time is the primary's."""
    primary, *backups = cluster.brokers
    assert primary.tls is not None
    pids = [primary.process.pid]
    link = (pids, [backup.process.pid for backup in backups]) if backups else None
    return Started(primary.port, primary.tls, pids, cluster, link, primary.http)


def _alone(run: Modules, files: Files) -> Started:
    return understudy(brokers.alone(*files.understudy(), tls=True, environment=run.environment))


def _pair(run: Modules, files: Files) -> Started:
    return understudy(brokers.pair(*files.understudy(), tls=True, environment=run.environment))


PURE = "^mix"
"""The loads that pure modules get besides compiled ones."""


def systems(run: Modules) -> list[System]:
    """All: Understudy with these modules, and besides with pure ones if these are compiled."""
    found = [
        System("rabbitmq", "RabbitMQ", partial(_rabbitmq, 1), address="/amq/queue/{}"),
        System("understudy", "Understudy", partial(_alone, run)),
        System(
            "rabbitmq-quorum",
            "RabbitMQ, quorum of three",
            partial(_rabbitmq, 3),
            replicated=True,
            quorum=True,
            address="/amq/queue/{}",
        ),
        System("understudy-pair", "Understudy pair", partial(_pair, run), replicated=True),
    ]
    if run.name == "compiled":
        plain = modules.pure()
        found += [
            System("understudy-pure", "Understudy, pure", partial(_alone, plain), only=PURE),
            System("understudy-pair-pure", "Understudy pair, pure", partial(_pair, plain), True, only=PURE),
        ]
    return found


COMPARED = [("rabbitmq", "understudy"), ("rabbitmq-quorum", "understudy-pair")]
"""The systems that do the same: a table each."""
MODULES = [("understudy-pure", "understudy"), ("understudy-pair-pure", "understudy-pair")]
"""With pure modules and with compiled ones."""
