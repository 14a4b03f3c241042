"""TLS for the HTTP listener, with the context that is in use when a connection comes, so that changed
certificate files count at once.

Owner: `HttpServer`. Stands between the listener and a connection's `Visit`. Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from broker.server.sockets import without_cycle


class Securing(asyncio.Protocol):
    """One connection until its handshake is done; then `inner` has it. A failed or slow handshake ends it."""

    def __init__(
        self, inner: asyncio.BaseProtocol, context: Callable[[], ssl.SSLContext], patience: float
    ) -> None:
        self._inner = inner
        self._context = context
        self._patience = patience
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # TLS begins in the next turn of the loop
        self._task = asyncio.get_running_loop().create_task(self._shake(transport))

    async def _shake(self, transport: asyncio.Transport) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self._inner, self._context(), server_side=True,
                ssl_handshake_timeout=self._patience,
            )  # fmt: skip
        except (OSError, asyncio.CancelledError):  # also what TLS does not like, and a handshake too slow
            secured = None
        if secured is None:
            transport.abort()
            without_cycle(transport)
            self._inner.connection_lost(None)
        else:
            self._inner.connection_made(secured)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
