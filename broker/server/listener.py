"""Listening sockets that survive a shortage of file descriptors.

Every listener of the process, for AMQP and HTTP, is opened here. asyncio accepts as many connections in one
wake-up as its backlog is long. When the process may open no more files, each of these attempts fails, is
logged, and is retried in bulk a second later, until the log fills the disk. So asyncio gets a backlog of one,
and the kernel the real one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

BACKLOG = 1024
"""Connections that may wait to be accepted."""


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int = BACKLOG
) -> asyncio.Server:
    """Listen on all addresses of `host`. Raises OSError."""
    server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=1)
    return _lengthened(server, backlog)


async def listen_at(
    factory: Callable[[], asyncio.BaseProtocol], bound: socket.socket, backlog: int = BACKLOG
) -> asyncio.Server:
    """Listen on a socket that is already bound; the server closes it. Raises OSError."""
    server = await asyncio.get_running_loop().create_server(factory, sock=bound, backlog=1)
    return _lengthened(server, backlog)


def _lengthened(server: asyncio.Server, backlog: int) -> asyncio.Server:
    for each in server.sockets:
        with each.dup() as same:
            same.listen(backlog)
    return server
