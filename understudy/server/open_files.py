"""How many files the node may have open, and how many connections that leaves room for.

Role: asked once by the daemon, before it listens. A connection is an open file, and a node that may open no
more cannot begin a new file of its store either, and ends. So connections are refused before that.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from typing import Any, NamedTuple

from broker.server.shell import LINGERING_MAX, RESERVE
from understudy import codes

WANTED = 65536
"""Open files; as in the unit for systemd."""
VISITORS = 200
"""The most connections of each door of HTTP."""
_OWN = 128
"""Open files that are neither: store, ledger, links, libraries."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG = logging.getLogger("understudy")


class Room(NamedTuple):
    """For how many connections there is room: AMQP clients; further ones for peers and operators; those of
    AMQP that wait for their peer to close; those of each door of HTTP."""

    clients: int
    reserve: int
    lingering: int
    visitors: int


def room() -> Room:
    """Raises the limit of open files as far as this process may, at most to WANTED."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # then it is as it was
            pass
    return room_of(WANTED if soft == resource.RLIM_INFINITY else soft)


def room_of(limit: int) -> Room:
    """With `limit` open files."""
    own = min(_OWN, limit // 4)
    visitors = min(VISITORS, (limit - own) // 8)
    reserve, lingering = min(RESERVE, limit // 16), min(LINGERING_MAX, limit // 16)
    # A pair may have a listener for its link alone, with as many places as the reserve has.
    clients = limit - own - 2 * (visitors + reserve) - lingering
    return Room(clients, reserve, lingering, visitors)


def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop has to say: one line if a connection cannot be taken, for it tries every second."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _SCARCE:
        _LOG.error(codes.FILES_EXHAUSTED.say(cause=error.strerror))
    else:
        loop.default_exception_handler(context)
