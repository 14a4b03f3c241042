"""A dead letter leaves its queue in the same batch as its copies, whatever becomes of those."""

from __future__ import annotations

import pytest

from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.values import Reason
from tests.broker.amqp091.transacting import gated


@pytest.mark.parametrize(
    ("refusing", "bound", "enqueued", "reason"),
    [
        ("reject-publish-dlx", ["full"], ["end"], Reason.REJECTED),
        ("reject-publish", ["full", "beside"], ["beside"], Reason.REJECTED),
        ("drop-head", ["full", "beside"], ["beside", "end", "full"], Reason.DEAD_LETTERED),
    ],
)
def test_a_copy_and_the_end_of_the_original_are_one_step(
    refusing: str, bound: list[str], enqueued: list[str], reason: Reason
) -> None:
    """Also if a full queue refuses the letter and sends it on, or another queue takes a copy. Otherwise a
    failover between the two steps would let the message die twice."""
    world, _, batches = gated()
    client = world.open()
    for name in ("end", "beside"):
        client.call(1, "queue.declare", queue=name)
    client.call(1, "exchange.declare", exchange="dead", type="fanout")
    rules = {"x-max-length": 0, "x-overflow": refusing, "x-dead-letter-exchange": ""}
    client.call(1, "queue.declare", queue="full", arguments=rules | {"x-dead-letter-routing-key": "end"})
    client.call(1, "queue.declare", queue="q", arguments={"x-dead-letter-exchange": "dead"})
    for name in bound:
        client.call(1, "queue.bind", queue=name, exchange="dead", routing_key="")
    client.publish(1, b"x", routing_key="q")
    client.send(1, "basic.get", queue="q")
    client.read()
    before = len(batches.taken)
    client.send(1, "basic.reject", delivery_tag=1, requeue=False)
    (batch,) = batches.taken[before : before + 1]
    queues = world.vhost.queues
    names = {queue.uuid: name for name, queue in queues.items()}
    runs = [record for record in batch.records if isinstance(record, EnqueueRun)]
    assert sorted(names[uuid] for run in runs for uuid in run.queues) == enqueued
    gone = [record for record in batch.records if isinstance(record, Dequeue)]
    assert (queues["q"].uuid, reason) in [(record.queue, record.reason) for record in gone]
