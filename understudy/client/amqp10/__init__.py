"""The client kit over AMQP 1.0, on Proton: `pip install 'understudy-amqp[amqp10]'`.

    from understudy.client.amqp10 import Publisher, Consumer

    with Publisher("10.0.0.1:5672,10.0.0.2:5672", name="shop") as publisher:
        publisher.publish(b"order 1", "/queues/orders")         # returns at once; resent after a failover
        publisher.flush()                                       # accepted: on both brokers; or refused

    with Consumer("10.0.0.1:5672,10.0.0.2:5672", "orders", name="billing") as consumer:
        for delivery in consumer.deliveries():
            print(delivery.body, delivery.redelivered)          # acked, in batches, once the loop comes back

It gives the same guarantees as `understudy.client`, and keeps the same ledgers. Each kit's consumers receive
the messages of the other kit's publishers. AMQP 1.0 cannot declare anything: exchanges and queues must exist.
TLS is Python's own, so all settings of `ClientTls` apply.
"""

from __future__ import annotations

try:
    import proton as _proton  # noqa: F401
except ImportError:
    raise ImportError(
        "AMQP 1.0 needs python-qpid-proton, which is not installed: pip install 'understudy-amqp[amqp10]'"
    ) from None

from understudy.client.amqp10.consumer import Consumer, Delivery
from understudy.client.amqp10.publisher import Publisher
from understudy.client.amqp10.wire import Refused
from understudy.client.brokers import ConnectFailed, Outage
from understudy.client.consuming import QueueGone
from understudy.client.numbering import Fenced, NotExactlyOnce
from understudy.client.processed import OwnTransaction, Processed, ProcessedFile
from understudy.client.publishing import NotConfirmed
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
]
