"""What the checkers have in common: words for roles and methods, and the reader of clients' bytes."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import wire
from tests.simulation.machine import Machine

SERVING = frozenset({"active", "recovering"})
SERVICE = frozenset(
    {
        "connection.open-ok", "basic.ack", "basic.deliver", "basic.get-ok", "basic.consume-ok",
        "exchange.declare-ok", "queue.declare-ok", "queue.bind-ok", "queue.purge-ok", "queue.delete-ok",
    }
)  # fmt: skip
"""Methods that only a serving node sends."""


class OutputReader:
    """Cuts each connection's output into methods and hands them on."""

    def __init__(self, handlers: list[Callable[[Machine, str, list[wire.Method]], None]]) -> None:
        self.handlers = handlers
        self._parsers: dict[str, wire.Parser] = {}

    def output(self, machine: Machine, connection: str, data: bytes) -> None:
        if connection.startswith(("link-", "operator")):
            return
        parser = self._parsers.setdefault(connection, wire.Parser())
        methods = [item for item in parser.feed(data) if isinstance(item, wire.Method)]
        if methods:
            for handler in self.handlers:
                handler(machine, connection, methods)
