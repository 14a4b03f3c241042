"""A run of messages into very many queues, in pieces: what one publish sets off must not stop the others.

A few of the messages go to all of their queues, then the next few. One message that goes to more queues than
a piece may reach goes to some of them at a time. So each queue has the messages in their order, and a confirm
is due when its message has come into its last queue. A queue that is deleted meanwhile gets none of the rest;
one that is bound meanwhile gets none. A client that goes before the end has published to some of the queues,
and had no confirm.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import Steps
from broker.model.values import Need
from broker.model.vhost.enqueueing import Published

PER_RUN = 16
"""What a run costs besides its messages in each of its queues, as if it had so many more."""


def steps_of(queues: int, messages: int) -> int:
    """What it takes to put so many messages into so many queues: one is some 0.3 us."""
    return (queues or 1) * (messages + PER_RUN)


def publish_in_turns(
    route: PublishRoute,
    raws: list[bytes],
    share: int,
    publish: Callable[[PublishRoute, list[bytes], int], Published],
    told: Callable[[Published, int, int], None],
) -> Steps[None]:
    """`publish` some of `raws` to some of the queues, the first of them being number so and so; each piece
    takes about `share` steps, or what one message takes in one queue. `told` what became of messages that
    have come into all queues, the number of the first one, and how many they are.
    """
    queues = len(route.queues) or 1
    most = max(1, share // queues - PER_RUN)
    for at in range(0, len(raws), most):
        some = raws if most >= len(raws) else raws[at : at + most]
        width = max(1, share // (len(some) + PER_RUN))
        need, accepted, steps = Need.NONE, len(some), 0
        reached = False
        for begin in range(0, queues, width):
            if steps:
                yield steps
            part = route.part(begin, begin + width)  # as things are after the others' turns
            steps = steps_of(len(part.queues), len(some))
            if part.queues:
                done, reached = publish(part, some, at), True
                need, accepted = max(need, done.need), min(accepted, done.accepted)
        if not reached:
            publish(route.part(0, 0), some, at)
        told(Published(need, accepted), at, len(some))
        yield steps
