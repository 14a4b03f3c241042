"""A broker of AMQP 1.0 on Proton's engine that does what a test says, in a thread: what ours never does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from select import POLLIN, poll
from types import TracebackType
from typing import Any, Self, cast

from proton import Collector, Event, EventType, Transport
from proton import Connection as Engine

from understudy.shared.amqp10.framing import SASL_HEADER
from understudy.shared.amqp10.sasl import OK, PLAIN, mechanisms, outcome

Script = Callable[["Served", EventType, Any], None]
"""What to do: on which connection, the event, and the session, link or delivery that it is of."""


class Served:
    """One connection. Opens and closes are answered here; whatever is of links is the script's."""

    def __init__(self, number: int, sock: socket.socket, window: int) -> None:
        self.number = number
        self.sock = sock
        self.engine = Engine()
        self._window = window
        self._collector = Collector()
        self.engine.collect(self._collector)
        self._transport = Transport(Transport.SERVER)
        self._transport.bind(self.engine)

    def login(self) -> None:
        assert self._exactly(8) == SASL_HEADER
        self.sock.sendall(SASL_HEADER + mechanisms([PLAIN]))
        self._exactly(int.from_bytes(self._exactly(4), "big") - 4)
        self.sock.sendall(outcome(OK))

    def _exactly(self, octets: int) -> bytes:
        return self.sock.recv(octets, socket.MSG_WAITALL)

    def push(self, data: bytes) -> None:
        while data:
            room = self._transport.capacity()
            assert room > 0
            self._transport.push(data[:room])
            data = data[room:]

    def serve(self, script: Script) -> None:
        while (event := self._collector.peek()) is not None:
            kind, context = event.type, cast("Any", event.context)
            self._collector.pop()
            if kind is Event.CONNECTION_REMOTE_OPEN:
                self.engine.open()
            elif kind is Event.CONNECTION_REMOTE_CLOSE:
                self.engine.close()
            elif kind is Event.SESSION_REMOTE_OPEN:
                context.incoming_capacity = self._window
                context.open()
            else:
                script(self, kind, context)

    def flush(self) -> None:
        while (size := self._transport.pending()) > 0:
            data = self._transport.peek(size) or b""
            self.sock.sendall(data)
            self._transport.pop(len(data))


class Scripted:
    """Serves one connection after another. `window`: octets that it takes before it has read them."""

    def __init__(self, script: Script, window: int = 2**20) -> None:
        self._script = script
        self._window = window
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._main, name="scripted broker")
        self.connections = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end.close()
        self._thread.join(10)
        for sock in (self._listener, self._over):
            sock.close()

    def _main(self) -> None:
        while self._comes(self._listener):
            sock, _ = self._listener.accept()
            self.connections += 1
            with sock:
                served = Served(self.connections, sock, self._window)
                try:
                    served.login()
                    while self._comes(sock) and (data := sock.recv(65536)):
                        served.push(data)
                        served.serve(self._script)
                        served.flush()
                except ConnectionError:
                    pass

    def _comes(self, sock: socket.socket) -> bool:
        """Something, and not the end of the test."""
        waiting = poll()
        waiting.register(sock, POLLIN)
        waiting.register(self._over, POLLIN)
        return all(descriptor != self._over.fileno() for descriptor, _ in waiting.poll())
