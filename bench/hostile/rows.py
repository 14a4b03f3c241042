"""The attacks, one function each, and what an honest client may notice of them.

An attack runs in a process of its own until it is killed. A new one is a function in a module of
`bench.hostile.attacks` that takes a `Target`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.hostile.attacks import amqp10, clients, dead_letters, directory, http, logins, peers, removals
from bench.hostile.attacks import transactions as tx
from bench.hostile.attacks.target import Target

P99_MS = 20.0
STOP_MS = 50.0
HEALTH_MS = 1000.0
"""As long as load balancers and resource managers wait at least."""


@dataclass(slots=True, frozen=True)
class Row:
    """`mib`: how much larger a broker may become. `prepare`: what is there before the attack, made by the
    attacker or by an operator in good faith; it is not measured. `visits`: whether the wait of health checks
    is a figure of this row."""

    name: str
    attack: Callable[[Target], None]
    mib: float
    prepare: Callable[[Target], None] | None = None
    visits: bool = False


ROWS = (
    Row("logins", logins.logins, 128),
    Row("spread-logins", logins.spread_logins, 128),
    Row("peer-logins", logins.peer_logins, 128),
    Row("far-epochs", peers.far_epochs, 64),
    Row("crowd", clients.crowd, 512),
    Row("http-silence", http.silence, 64, visits=True),
    Row("http-origins", http.foreign_origins, 64, visits=True),
    Row("drip", clients.drip, 256),
    Row("tables", clients.tables, 128),
    Row("consumers", clients.consumers, 128),
    Row("fanout", clients.fanout, 256),
    Row("headers", directory.headers, 256, directory.bind_headers),
    Row("topics", directory.topics, 256, directory.bind_topics),
    Row("patterns", directory.patterns, 64, directory.store_user),
    Row("refusals", dead_letters.refusals, 256),
    Row("expiries", dead_letters.expiries, 256),
    Row("dead-letter-cycle", dead_letters.cycle, 256, dead_letters.fill_cycle),
    Row("commits", tx.commits, 256),
    Row("topic-commits", tx.topic_commits, 256, directory.bind_topics),
    Row("topic-refusals", dead_letters.topic_refusals, 256, directory.bind_topics),
    Row("purges", removals.purges, 128, removals.fill_deep_queues),
    Row("exclusive-queues", removals.exclusive, 256),
    Row("lost-unacked", removals.unacked, 128, removals.fill_unacked),
    Row("amqp10-links", amqp10.links, 128),
    Row("amqp10-held-links", amqp10.held_links, 128),
    Row("amqp10-hoard", amqp10.hoard, 128),
    Row("amqp10-lost", amqp10.lost, 128),
    Row("amqp10-receivers", amqp10.receivers, 128),
    Row("amqp10-wrong-types", amqp10.wrong_types, 64),
)
