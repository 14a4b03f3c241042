"""A real broker on a real socket, in a thread of the test: for what py-amqp and kombu themselves do."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.engine import Broker
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.records import EntryPut
from broker.model.vhost.vhosts import VirtualHosts
from broker.server.shell import Shell
from broker.settings import BrokerSettings
from understudy.shared.addresses import HostPort


class BrokerThread:
    """A standalone broker without a store. `stop` says goodbye to clients, `kill` does not."""

    def __init__(
        self, epoch: int = 1, vhosts: tuple[str, ...] = (), protocols: Mapping[bytes, Any] | None = None,
        settings: BrokerSettings | None = None,
    ) -> None:  # fmt: skip
        """`vhosts`: those besides `/`; `protocols`: those besides AMQP 0-9-1."""
        self._epoch = epoch
        self._settings = settings or BrokerSettings()
        self._protocols = protocols or {}
        self._vhosts = vhosts
        self._bound = threading.Event()
        self._shell: Shell | None = None
        self._broker: Broker | None = None
        self._graceful = True
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="broker")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._bound.wait(10)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> HostPort:
        assert self._shell is not None
        return HostPort(*self._shell.addresses[0])

    def stop(self) -> None:
        """End with connection.close 320 to everybody."""
        shell = self._shell
        if shell is not None and self._thread.is_alive():
            shell.loop.call_soon_threadsafe(shell.request_stop)
            self._thread.join(10)

    def kill(self) -> None:
        """End as a killed process does: the kernel closes the sockets, nobody says why."""
        self._graceful = False
        self.stop()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still for that long: its sockets stay, and nothing is said or read."""
        assert self._shell is not None
        go_on = threading.Event()
        self._shell.loop.call_soon_threadsafe(go_on.wait, 30)
        try:
            yield
        finally:
            go_on.set()

    async def _main(self) -> None:
        hooks, history = Hooks(), History(self._epoch)
        vhost = VirtualHosts(hooks, history, lambda: os.urandom(16), MESSAGE_FORMAT).root
        vhost.shared.activate(self._epoch)
        vhost.shared.change_directory([EntryPut("vhost", "", name) for name in self._vhosts])
        self._broker = Broker(self._settings, hooks, vhost.shared)
        self._broker.protocols.update(self._protocols)
        self._shell = shell = Shell(self._broker)
        await shell.listen("127.0.0.1", 0)
        self._bound.set()
        await shell.run()
        if self._graceful:
            self._broker.close_connections(320, "CONNECTION_FORCED - shutdown", self._broker.now)
        await shell.close(2.0 if self._graceful else 0.0)
