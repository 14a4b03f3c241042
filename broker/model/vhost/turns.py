"""Publishes a run of messages to very many queues in pieces, so that one publish does not block other
clients.

Some of the messages go to all their queues, then the next ones. A message for more queues than a piece covers
goes to some of them at a time. So each queue gets the messages in order, and a confirm is due when its
message is in its last queue. A queue that is deleted meanwhile gets none of the rest; a queue that is bound
meanwhile gets none. A client that disconnects before the end has published to some of the queues, and got no
confirm.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import Steps
from broker.model.values import Need
from broker.model.vhost.enqueueing import Published

PER_RUN = 16
"""Fixed cost of a run in each of its queues, counted as messages."""


def steps_of(queues: int, messages: int) -> int:
    """Steps for putting so many messages into so many queues; a step is some 0.3 us."""
    return (queues or 1) * (messages + PER_RUN)


def publish_in_turns(
    route: PublishRoute,
    raws: list[bytes],
    share: int,
    publish: Callable[[PublishRoute, list[bytes], int], Published],
    report: Callable[[Published, int, int], None],
) -> Steps[None]:
    """Call `publish` with some of `raws` and some of the queues; its last argument is the number of the first
    message. Each piece takes about `share` steps, or what one message takes in one queue. When messages are
    in all queues, `report` gets the result, the number of the first message, and their count."""
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
            part = route.part(begin, begin + width)  # without the queues deleted during other clients' turns
            steps = steps_of(len(part.queues), len(some))
            if part.queues:
                done, reached = publish(part, some, at), True
                need, accepted = max(need, done.need), min(accepted, done.accepted)
        if not reached:
            publish(route.part(0, 0), some, at)
        report(Published(need, accepted), at, len(some))
        yield steps
