"""The sockets of a simulated machine: connections that its node accepted, and those that it asked for.

Owner: Machine. Do for them what the asyncio shell's sockets do: back-pressure both ways, close after the
output. A stopped process (`Machine.paused`) takes nothing from its kernel: it hears all of it when it goes
on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.peer import Peer
from tests.simulation.harness.network import End

if TYPE_CHECKING:
    from broker.amqp091.server.connection import ServerConnection
    from tests.simulation.harness.machines.machine import Machine


class InboundSocket:
    """A connection that the node accepted. Implements `network.Socket`."""

    def __init__(self, machine: Machine, end: End) -> None:
        self.machine = machine
        self.end = end
        self.name = end.stream
        self.conn: ServerConnection | None = None
        machine.hear(self._open)

    def received(self, data: bytes) -> None:
        self.machine.hear(partial(self._received, data))

    def closed(self, clean: bool) -> None:
        self.machine.hear(partial(self._closed, clean))

    def _open(self) -> None:
        machine = self.machine
        machine.accepted += 1
        address = ("127.0.0.1", 40000 + machine.accepted)
        self.conn = machine.running.accept(Peer(*address, loopback=True), machine.host.now)
        machine.inbound[id(self.conn)] = self

    def _received(self, data: bytes) -> None:
        if self.conn is not None and self.end.open:
            self.machine.on_input(self.machine, self.name, data)
            self.conn.receive(data, self.machine.host.now)
            self.machine.only_acked = self.conn.only_acked

    def _closed(self, clean: bool) -> None:
        if self.conn is not None and self.machine.inbound.pop(id(self.conn), None) is not None:
            if clean:
                self.conn.eof(self.machine.host.now)
            self.conn.lost(self.machine.host.now)

    def flush(self) -> None:
        """After a tick: write what there is, then follow the connection's wishes."""
        conn, end = self.conn, self.end
        if conn is None:
            return
        data = b"".join(conn.take_output())
        if data:
            self.machine.tap(self.machine, self.name, data)
            end.send(data)
            self._press_back(conn)
        if conn.wants_close:
            self.machine.inbound.pop(id(conn), None)
            end.close(clean=True)
            conn.lost(self.machine.host.now)
        elif conn.paused_reading is end.reading:
            end.read(not conn.paused_reading)

    def _press_back(self, conn: ServerConnection) -> None:
        unread = self.end.peer.waiting - self.end.network.plan.buffer
        if unread > 0 and self.end.peer.drained is None:
            conn.written(unread)
            conn.writable(False)
            self.end.peer.drained = self._drained

    def _drained(self) -> None:
        self.machine.hear(self._writable)

    def _writable(self) -> None:
        if self.conn is not None and id(self.conn) in self.machine.inbound:
            self.conn.writable(True)


class DialSocket:
    """A connection that the node asked for. Implements `network.Socket`."""

    def __init__(self, machine: Machine, dial_id: int, end: End) -> None:
        self.machine = machine
        self.dial_id = dial_id
        self.end = end

    def received(self, data: bytes) -> None:
        self.machine.hear(partial(self._received, data))

    def closed(self, clean: bool) -> None:
        # FIN or RST, the peer's kernel has answered: that is what the node calls clean.
        self.machine.hear(partial(self._closed, not self.end.gave_up))

    def _received(self, data: bytes) -> None:
        if self.dial_id in self.machine.dials:
            self.machine.running.dial_received(self.dial_id, data, self.machine.host.now)

    def _closed(self, answered: bool) -> None:
        if self.machine.dials.pop(self.dial_id, None) is not None:
            self.machine.on_dial_ended(self.machine, self.end, answered)
            self.machine.running.dial_closed(self.dial_id, answered, self.machine.host.now)

    def flush(self) -> None:
        node = self.machine.running
        data = b"".join(node.take_dial_output(self.dial_id))
        if data:
            self.machine.on_dial_output(self.machine, self.end, data)
            self.end.send(data)
        if node.dial_wants_close(self.dial_id):
            self.machine.dials.pop(self.dial_id, None)
            self.machine.on_dial_ended(self.machine, self.end, False)
            self.end.close(clean=True)
            node.dial_closed(self.dial_id, True, self.machine.host.now)
