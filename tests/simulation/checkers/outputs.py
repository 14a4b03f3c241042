"""Cuts what a node sends to its clients into methods, as cheaply as may be: most of it is content."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.checkers.clients.commands import AFTER
from tests.simulation.clients import wire
from tests.simulation.harness.machines.machine import Machine

SERVICE = frozenset(
    {
        "connection.open-ok", "basic.ack", "basic.deliver", "basic.get-ok", "basic.consume-ok",
        "exchange.declare-ok", "queue.declare-ok", "queue.bind-ok", "queue.purge-ok", "queue.delete-ok",
        "tx.commit-ok",
    }
)  # fmt: skip
"""Methods that only a serving node sends."""

_SERVICE_IDS = frozenset(struct.pack(">HH", *wire.SPECS[name].ids) for name in SERVICE)
_DEFINITIONS = frozenset(
    struct.pack(">HH", *wire.SPECS[f"{name}-ok"].ids)
    for name in (
        "queue.declare",
        "queue.delete",
        "queue.bind",
        "queue.unbind",
        "exchange.declare",
        "exchange.bind",
        "exchange.unbind",
        "exchange.delete",
    )
)
_AFTER = {struct.pack(">HH", *wire.SPECS[name].ids): name for name in AFTER}
_ACK = struct.pack(">HH", *wire.SPECS["basic.ack"].ids)
_COMMITTED = struct.pack(">HH", *wire.SPECS["tx.commit-ok"].ids)
_METHOD, _END = 1, 0xCE


class Confirm(NamedTuple):
    """A basic.ack to a publisher."""

    tag: int
    multiple: bool


Served = Callable[[Machine, str, list[Confirm], int], None]
"""Told of each piece of output with service in it: machine, connection, the confirms in it, and how many
answers to definitions."""


def _ignore(machine: Machine, connection: str) -> None:
    """Nobody listens."""


def _ignore_answer(machine: Machine, connection: str, answer: str) -> None:
    """Nobody listens."""


class OutputReader:
    """Tells `answered` of each answer that waits for a batch, then `served`, then `committed` of each
    commit-ok. Links and operators' connections are no service."""

    def __init__(
        self, served: Served, committed: Callable[[Machine, str], None] = _ignore,
        answered: Callable[[Machine, str, str], None] = _ignore_answer,
    ) -> None:  # fmt: skip
        self.served = served
        self.committed = committed
        self.answered = answered
        self._rest: dict[str, bytes] = {}

    def output(self, machine: Machine, connection: str, data: bytes) -> None:
        if connection.startswith(("link-", "operator", "controller")):
            return
        rest = self._rest.pop(connection, None)
        if rest is not None:
            data = rest + data
        at, size, service, answers, commits = 0, len(data), False, 0, 0
        confirms: list[Confirm] = []
        while size - at >= 8:
            end = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
            if end > size:
                break
            if data[end - 1] != _END:
                raise wire.WireError(f"a frame to {connection} does not end with 0xCE")
            if data[at] == _METHOD:
                ids = data[at + 7 : at + 11]
                answers += ids in _DEFINITIONS
                if ids in _AFTER:
                    self.answered(machine, connection, _AFTER[ids])
                if ids in _SERVICE_IDS:
                    service = True
                    commits += ids == _COMMITTED
                    if ids == _ACK:
                        tag = int.from_bytes(data[at + 11 : at + 19], "big")
                        confirms.append(Confirm(tag, bool(data[at + 19] & 1)))
            at = end
        if at < size:
            self._rest[connection] = data[at:]
        if service or answers:
            self.served(machine, connection, confirms, answers)
        for _ in range(commits):
            self.committed(machine, connection)
