"""Pre-built publishes for the load generator: alike, with ids of their own, or a mix as Celery's tasks are.

Shares no code with the broker. Called by bench/generator.py.
"""

from __future__ import annotations

import random
import struct
import uuid
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

from bench.wire import Properties, longstr, message_frames, shortstr

COPIES = 262144
"""Octets of pre-built frames when all are alike."""
DISTINCT = 20_000
"""Messages built when each is to differ: too many for anything to remember them all."""
MIXED = (64, 4096)
"""Octets of the bodies of a mix, log-uniform between the two."""


@dataclass(slots=True)
class Ring:
    """Messages with all their frames, to be sent round and round."""

    octets: bytearray
    ends: array[int]
    """Where each message ends."""

    @classmethod
    def of(cls, messages: Iterable[bytes]) -> Ring:
        octets, ends = bytearray(), array("Q")
        for message in messages:
            octets += message
            ends.append(len(octets))
        return cls(octets, ends)


def content(size: int) -> bytes:
    """The octets of each body of this size. A verified body has the number of its message in the first 8."""
    return (bytes(range(32, 96)) * (size // 64 + 1))[:size]


def alike(keys: Sequence[str], size: int, *, persistent: bool, exchange: str = "") -> Ring:
    """Equal messages, with each routing key in turn."""
    body, properties = content(size), Properties(persistent=persistent)
    turn = [message_frames(key, body, properties, exchange=exchange) for key in keys]
    times = max(1, COPIES // sum(map(len, turn)))
    return Ring.of(turn * times)


def prioritized(queue: str, size: int, priorities: int, *, persistent: bool) -> Ring:
    """Equal messages, of each priority in turn."""
    body = content(size)
    turn = [
        message_frames(queue, body, Properties(persistent=persistent, priority=priority))
        for priority in range(priorities)
    ]
    return Ring.of(turn * max(1, COPIES // sum(map(len, turn))))


def routed(exchange: str, kind: str, bindings: int, size: int, *, persistent: bool, seed: int) -> Ring:
    """Messages for an exchange with so many bindings; each matches one, drawn from the seed."""
    randomly = random.Random(seed)
    body = content(size)
    messages = []
    for _ in range(min(DISTINCT, max(1_000, bindings))):
        at = randomly.randrange(bindings)
        headers = binding_headers(at) if kind == "headers" else None
        properties = Properties(persistent=persistent, headers=headers)
        messages.append(message_frames(f"shop.{at}.paid", body, properties, exchange=exchange))
    return Ring.of(messages)


def binding_headers(at: int) -> bytes:
    """The headers that the binding of this number asks for, as the fields of a table."""
    return shortstr("tenant") + b"I" + struct.pack(">i", at)


def with_ids(queues: Sequence[str], size: int, *, persistent: bool) -> Ring:
    """Messages that differ in their message-id only."""
    body = content(size)
    return Ring.of(
        message_frames(queue, body, Properties(persistent=persistent, message_id=str(uuid.uuid4())))
        for queue in _turns(queues, DISTINCT)
    )


def mix(queues: Sequence[str], *, persistent: bool, seed: int, count: int = DISTINCT) -> Ring:
    """Messages as Celery's: own ids in a table of 11 headers and in correlation-id, bodies of many sizes."""
    randomly = random.Random(seed)
    body = content(MIXED[1])
    messages = []
    for queue in _turns(queues, count):
        task = str(uuid.UUID(int=randomly.getrandbits(128), version=4))
        size = round(exp(randomly.uniform(log(MIXED[0]), log(MIXED[1]))))
        properties = Properties(
            content_type="application/json",
            headers=celery_headers(task, str(uuid.UUID(int=randomly.getrandbits(128), version=4))),
            persistent=persistent,
            correlation_id=task,
        )
        messages.append(message_frames(queue, body[:size], properties))
    return Ring.of(messages)


def celery_headers(task: str, root: str) -> bytes:
    """11 of the headers of Celery's message protocol 2, as the fields of a table."""
    texts = celery_texts(task, root)
    fields = [shortstr(name) + b"S" + longstr(value.encode()) for name, value in texts.items()]
    fields += [shortstr(name) + b"V" for name in ("eta", "expires")]
    fields.append(shortstr("retries") + b"I" + struct.pack(">i", 0))
    return b"".join(fields)


def celery_texts(task: str, root: str) -> dict[str, str]:
    """Those of these headers that are strings."""
    return {
        "lang": "py",
        "task": "shop.orders.send_receipt",
        "id": task,
        "root_id": root,
        "parent_id": root,
        "argsrepr": f"('{root}', 17)",
        "kwargsrepr": "{'retry': True}",
        "origin": "gen4711@web-1",
    }


def _turns(queues: Sequence[str], count: int) -> Iterable[str]:
    """Each queue equally often, so that the ring's rounds join."""
    return (queues[at % len(queues)] for at in range(max(1, count // len(queues)) * len(queues)))
