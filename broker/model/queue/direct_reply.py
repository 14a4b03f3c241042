"""Direct reply-to, as in RabbitMQ: replies come to a consumer of a name that is no queue.

Behind it is a temporary queue of the consumer's channel, which the property `reply-to` of the channel's
messages names in place of `REPLY_TO`. So replies come by the default exchange, from clients of both
protocols and from federated brokers. The queue is not replicated, and ends with its consumer.
"""

from __future__ import annotations

REPLY_TO = "amq.rabbitmq.reply-to"
PREFIX = REPLY_TO + "."


def is_direct_reply(name: str) -> bool:
    """Whether that is the queue of such a consumer."""
    return name.startswith(PREFIX)
