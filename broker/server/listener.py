"""Listening sockets that live through a lack of open files.

Role: what opens every listener of the process, for AMQP and for HTTP. asyncio takes as many connections at
one wake-up as its backlog is long; when the process may open no more files, it fails, tells and tries again
as many times, and each of these tries becomes as many a second later, until the log fills the disk. So
asyncio is told of a backlog of one, and the kernel of the real one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

BACKLOG = 1024
"""Connections that wait to be taken."""


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int = BACKLOG
) -> asyncio.Server:
    """On all addresses of `host`. Raises OSError."""
    server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=1)
    return _lengthened(server, backlog)


async def listen_at(
    factory: Callable[[], asyncio.BaseProtocol], bound: socket.socket, backlog: int = BACKLOG
) -> asyncio.Server:
    """On a socket that is bound already; the server closes it. Raises OSError."""
    server = await asyncio.get_running_loop().create_server(factory, sock=bound, backlog=1)
    return _lengthened(server, backlog)


def _lengthened(server: asyncio.Server, backlog: int) -> asyncio.Server:
    for each in server.sockets:
        with each.dup() as same:
            same.listen(backlog)
    return server
