"""The client kit: a publisher and a consumer on kombu that survive the loss of a broker, and keep a ledger.

    from understudy.client import Publisher, Consumer

    with Publisher("10.0.0.1:5672,10.0.0.2:5672", name="shop") as publisher:
        publisher.publish(b"order 1", routing_key="orders")     # on its way; resent after a failover
        publisher.flush()                                       # all confirmed

    with Consumer("10.0.0.1:5672,10.0.0.2:5672", "orders", name="billing") as consumer:
        for delivery in consumer.deliveries():
            print(delivery.body, delivery.redelivered)          # acked, in batches, once the loop comes back

Over TLS the addresses are `amqps://10.0.0.1:5671,...`, and `tls=ClientTls("ca.pem")` says whom to trust.

docs/reference/clients.md describes refused messages, and slow brokers and applications.

Plain kombu works with a pair too, by its own failover list; the kit adds confirms that are awaited in a
window, a resend of what is in doubt before anything new, a retry every 50 ms instead of 2 s, and ledgers for
Spark. `understudy.client.amqp10` is the same over AMQP 1.0; it alone needs Proton.

A publisher or consumer belongs to the thread that uses it and to the process that made it. In a program that
forks (workers of Celery or gunicorn), each process makes its own, with a name of its own; a child that uses
its parent's gets a RuntimeError, and disturbs nothing.
"""

from __future__ import annotations

from understudy.client.brokers import ConnectFailed, Outage
from understudy.client.consumer import Consumer, Delivery
from understudy.client.consuming import QueueGone
from understudy.client.publisher import Publisher
from understudy.client.publishing import NotConfirmed
from understudy.client.refusals import Refused
from understudy.client_tls import ClientTls

__all__ = [
    "ClientTls",
    "ConnectFailed",
    "Consumer",
    "Delivery",
    "NotConfirmed",
    "Outage",
    "Publisher",
    "QueueGone",
    "Refused",
]
