"""A broker with real sockets in its own thread, for tests with real clients."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.engine import Broker
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.records import EntryPut
from broker.model.vhost.vhosts import VirtualHosts
from broker.server.event_loop import TickLoop
from broker.server.shell import Shell
from broker.settings import BrokerSettings


@dataclass
class Live:
    """`host` and `port` to connect to. `broker` belongs to the thread: read it only while it is idle."""

    broker: Broker
    host: str = "127.0.0.1"
    port: int = 0
    logged: list[str] = field(default_factory=list)
    tls_port: int = 0

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}//"


@contextmanager
def live_broker(
    tls: Callable[[], SSLContext] | None = None, *, stored: Sequence[EntryPut] = (), **settings: Any
) -> Iterator[Live]:
    """Serve on a free loopback port until the block ends; then stop as a daemon would. `tls`: also serve TLS
    on another port. `stored`: stored users and permissions."""
    numbers = itertools.count(1)
    vhost = VirtualHosts(Hooks(), History(), lambda: next(numbers).to_bytes(16, "big"), MESSAGE_FORMAT).root
    vhost.shared.activate(1)
    vhost.shared.change_directory(stored)
    logged: list[str] = []
    live = Live(
        Broker(BrokerSettings(**settings), Hooks(), vhost.shared, log=lambda told: logged.append(str(told))),
        logged=logged,
    )
    ready = threading.Event()
    shells: list[Shell] = []
    failed: list[str | None] = []

    async def serve() -> None:
        shell = Shell(live.broker)
        _, live.port = await shell.listen(live.host, 0)
        if tls is not None:
            _, live.tls_port = await shell.listen(live.host, 0, tls=tls)
        shells.append(shell)
        ready.set()
        failed.append(await shell.run())
        live.broker.close_connections(320, "CONNECTION_FORCED - broker is stopping", live.broker.now)
        await shell.close(grace=1.0)

    def run() -> None:
        with asyncio.Runner(loop_factory=TickLoop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="broker")
    thread.start()
    try:
        assert ready.wait(10)
        yield live
    finally:
        shells[0].loop.call_soon_threadsafe(shells[0].request_stop)
        thread.join(10)
        assert not thread.is_alive()
    assert failed == [None]
    assert not live.broker.connections
