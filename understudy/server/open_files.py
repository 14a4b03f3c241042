"""The limit of open files, and the number of connections that it leaves room for.

Role: the daemon asks once, before it listens. Each connection is an open file. A node that may open no more
files cannot start a new file of its store, and stops. So it refuses connections before that.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from typing import Any, NamedTuple

from broker.server.shell import LINGERING_MAX, RESERVE
from understudy import codes
from understudy.http.places import VISITORS

WANTED = 65536
"""Open files, as in the systemd unit."""
_OWN = 128
"""Open files other than connections: store, ledger, links, libraries."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG = logging.getLogger("understudy")


class Room(NamedTuple):
    """Numbers of connections: AMQP clients; more for peers and operators; closed AMQP connections that wait
    for their peer; those of each HTTP listener."""

    clients: int
    reserve: int
    lingering: int
    visitors: int


def room() -> Room:
    """Raise the limit of open files as far as the process may, at most to WANTED, and share it out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # the limit stays as it is
            pass
    return room_of(WANTED if soft == resource.RLIM_INFINITY else soft)


def room_of(limit: int) -> Room:
    """The room with `limit` open files."""
    own = min(_OWN, limit // 4)
    visitors = min(VISITORS, (limit - own) // 8)
    reserve, lingering = min(RESERVE, limit // 16), min(LINGERING_MAX, limit // 16)
    # A pair may have a listener of its own for the link, with as many places as the reserve.
    clients = limit - own - 2 * (visitors + reserve) - lingering
    return Room(clients, reserve, lingering, visitors)


def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handler for exceptions of the event loop: one line if a connection cannot be accepted, since the loop
    tries again every second."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _SCARCE:
        _LOG.error(codes.FILES_EXHAUSTED.say(cause=error.strerror))
    else:
        loop.default_exception_handler(context)
