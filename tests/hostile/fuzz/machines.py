"""Holds a conversation with a broker without sockets, and looks at what it has left behind."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from random import Random

from tests.bad_inputs.neighbour import neighbour_unharmed
from tests.broker.amqp091.wire import World
from tests.broker.amqp10.wire import Octets, world10
from tests.hostile.fuzz import words091, words10
from tests.hostile.fuzz.mutations import in_pieces, spoil

WORDS: dict[str, Callable[[Random], list[bytes]]] = {
    "0-9-1": words091.conversation, "1.0": words10.conversation,
}  # fmt: skip
MESSAGES = 200_000
"""More than any conversation can make."""


class Harm(AssertionError):
    """A conversation did what it must not."""


def drawn(protocol: str, seed: int) -> list[bytes]:
    """The pieces in which one conversation arrives."""
    rng = Random(f"{protocol}/{seed}")
    frames = WORDS[protocol](rng)
    spoil(rng, frames)
    return in_pieces(rng, frames)


def hold(protocol: str, seed: int) -> None:
    """Raises Harm, or whatever the broker raised."""
    world = world10(message_max=1 << 20)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), neighbour_unharmed(world):
        world.vhost.declare_queue("q", owner=world)
        client = Octets(world)
        for piece in drawn(protocol, seed):
            if client.closed:
                break
            client.raw(piece)
            client.take()
        world.pass_time(0.1)
        _look(world, client)
    if errors.getvalue():
        raise Harm(f"written to stderr: {errors.getvalue()[:300]}")


def _look(world: World, client: Octets) -> None:
    if bad := [line for line in world.logged if "Traceback" in line or "unexpected" in line or "\n" in line]:
        raise Harm(bad[0])
    if sum(queue.message_count for queue in world.vhost.queues.values()) > MESSAGES:
        raise Harm("very many messages")
    client.connection.lost(world.now)
    world.pass_time(1.0)
    if len(world.broker.connections) != 1:
        raise Harm(f"{len(world.broker.connections)} connections where one is left")
    if world.broker.memory.unfinished:
        raise Harm(f"{world.broker.memory.unfinished} octets of unfinished messages of nobody")
    left = [
        q.name for q in world.vhost.queues.values() if q.exclusive or (q.consumers and q.name != "neighbour")
    ]
    if left:
        raise Harm(f"left behind: queues {left}")
