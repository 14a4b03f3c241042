"""ReplicationTest: is an object replicated, and how far? Decided by the primary, once, and stamped on the
object.

Owner: the adapter's hooks, which ask at each declaration. Levels: `none`, `configuration`, `all`.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.model.records import ExchangeDeclare, QueueDeclare
from broker.model.values import Scope

ARGUMENT = "x-replicate"
LEVELS = ("none", "configuration", "all")


class ReplicationTest:
    """Knows the default level (`ha.replicate`)."""

    def __init__(self, default: str) -> None:
        self.default = default

    def queue_level(self, declared: QueueDeclare) -> str:
        """Temporary queues (exclusive, or auto-delete and not durable) are replicated only when asked."""
        asked = self._asked(declared.arguments)
        if asked is not None:
            return asked
        temporary = declared.exclusive or (declared.auto_delete and not declared.durable)
        return "none" if temporary else self.default

    def exchange_level(self, declared: ExchangeDeclare) -> str:
        """`all` and `configuration` are the same for an exchange: it holds no messages."""
        asked = self._asked(declared.arguments)
        return asked if asked is not None else self.default

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        """Stamps the level. Durable ones are stored as well."""
        declared.replicate = self.queue_level(declared)
        stored = Scope.STORE if declared.durable and not declared.exclusive else Scope.NONE
        return stored | (Scope.NONE if declared.replicate == "none" else Scope.LINK)

    def exchange_scope(self, declared: ExchangeDeclare) -> Scope:
        declared.replicate = self.exchange_level(declared)
        stored = Scope.STORE if declared.durable else Scope.NONE
        return stored | (Scope.NONE if declared.replicate == "none" else Scope.LINK)

    def _asked(self, arguments: Mapping[str, object]) -> str | None:
        """The argument if it is one of the levels; anything else is treated as not said."""
        value = arguments.get(ARGUMENT)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return value if isinstance(value, str) and value in LEVELS else None
