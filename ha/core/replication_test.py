"""ReplicationTest: is an object replicated, and how far? Decided by the primary, once, and stamped on the
object.

Owner: the adapter's hooks, which ask at each declaration. Levels: `none`, `configuration`, `all`. A client
that asks for another is refused before (`check_queue_arguments`); one that an earlier version stored, or that
a copy has from its source, counts as not said. A broker of no pair has no default, so that what says nothing
stays `unset`; it is asked again when the broker begins to serve as the primary of one.
"""

from __future__ import annotations

from broker.model.history.records import ExchangeDeclare, QueueDeclare
from broker.model.values import REPLICATE, UNSET, Scope, level_of

_HERE = ("none", UNSET)
"""Levels of what no link sees."""


class ReplicationTest:
    """Knows the default level (`ha.replicate`; UNSET: there is no pair)."""

    def __init__(self, default: str) -> None:
        self.default = default

    def queue_level(self, declared: QueueDeclare) -> str:
        """Temporary queues (exclusive, or auto-delete and not durable) are replicated only when asked."""
        asked = level_of(declared.arguments.get(REPLICATE))
        if asked is not None:
            return asked
        temporary = declared.exclusive or (declared.auto_delete and not declared.durable)
        return "none" if temporary else self.default

    def exchange_level(self, declared: ExchangeDeclare) -> str:
        """`all` and `configuration` are the same for an exchange: it holds no messages."""
        asked = level_of(declared.arguments.get(REPLICATE))
        return asked if asked is not None else self.default

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        """Stamps the level. Durable ones are stored as well."""
        declared.replicate = self.queue_level(declared)
        stored = Scope.STORE if declared.durable and not declared.exclusive else Scope.NONE
        return stored | (Scope.NONE if declared.replicate in _HERE else Scope.LINK)

    def exchange_scope(self, declared: ExchangeDeclare) -> Scope:
        declared.replicate = self.exchange_level(declared)
        stored = Scope.STORE if declared.durable else Scope.NONE
        return stored | (Scope.NONE if declared.replicate in _HERE else Scope.LINK)
