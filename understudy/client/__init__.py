"""The client kit: a publisher and a consumer on kombu that survive the loss of a broker, and keep a ledger.

    from understudy.client import Publisher, Consumer

    with Publisher("10.0.0.1:5672,10.0.0.2:5672", name="shop") as publisher:
        publisher.publish(b"order 1", routing_key="orders")     # on its way; resent after a failover
        publisher.flush()                                       # all confirmed

    with Consumer("10.0.0.1:5672,10.0.0.2:5672", "orders", name="billing") as consumer:
        for delivery in consumer.deliveries():
            print(delivery.body, delivery.redelivered)          # acked, in batches, once the loop comes back

For TLS, pass addresses as `amqps://10.0.0.1:5671,...` and the CA file as `tls=ClientTls("ca.pem")`.

With `ledger_dir` and `exactly_once=True`, a publisher numbers its messages, and no queue takes one twice,
also after a restart of the application (docs/how-to/no-duplicates.md).

docs/reference/clients.md describes refused messages, and slow brokers and applications.

Plain kombu also works with a pair, by its own failover list. The kit adds a window of unconfirmed messages,
a resend of messages in doubt before any new message, a retry every 50 ms instead of 2 s, and ledgers for
Spark. `understudy.client.amqp10` offers the same over AMQP 1.0, and is the only part that needs Proton.

A publisher or consumer belongs to the thread that uses it and to the process that created it. In a program
that forks (Celery or gunicorn workers), each process creates its own, under its own name. A child process
that uses its parent's publisher or consumer gets a RuntimeError; the parent is not affected.
"""

from __future__ import annotations

from understudy.client.brokers import ConnectFailed, Outage
from understudy.client.consumer import Consumer, Delivery
from understudy.client.consuming import QueueGone
from understudy.client.ledgers import ReplicationId, parse_replication_id
from understudy.client.numbering import Fenced, NotExactlyOnce
from understudy.client.processed import OwnTransaction, Processed, ProcessedFile
from understudy.client.publisher import Publisher
from understudy.client.publishing import NotConfirmed
from understudy.client.refusals import Refused
from understudy.client_tls import ClientTls

__all__ = [
    "ClientTls",
    "ConnectFailed",
    "Consumer",
    "Delivery",
    "Fenced",
    "NotConfirmed",
    "NotExactlyOnce",
    "Outage",
    "OwnTransaction",
    "Processed",
    "ProcessedFile",
    "Publisher",
    "QueueGone",
    "Refused",
    "ReplicationId",
    "parse_replication_id",
]
