"""Ports for servers that are started, killed and started again where they were.

A port that the kernel gives for 0 may be given to somebody else while its server is down. These lie below the
range that the kernel gives from, and each process of `pytest -n` has a part of them to itself.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from pathlib import Path

LOWEST, HIGHEST, PROCESSES = 10_000, 32_000, 8


def _mine() -> range:
    """This process's part."""
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    highest = min(HIGHEST, given) if given > LOWEST + 1000 else HIGHEST
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    size = (highest - LOWEST) // PROCESSES
    return range(LOWEST + worker * size, LOWEST + (worker + 1) * size)


_PORTS = _mine()
# Another run of the tests on this machine has most likely begun elsewhere.
_NEXT = itertools.count(random.SystemRandom().randrange(len(_PORTS)))


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, at any address of this machine; all different."""
    found: list[int] = []
    for number in itertools.islice(_NEXT, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"there are no {count} free ports in {_PORTS}")
