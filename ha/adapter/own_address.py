"""Tells from the configuration alone whether this node's own address is in its `ha.brokers`. Pure.

A node that is not in its own list waits for an answer from an address at which no broker runs: its own, with
a mistake.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = tuple[str, int]


def left_out(brokers: Sequence[Address], listens: Sequence[Address]) -> str:
    """Where this node listens, if that is none of `brokers`; else "". Names, wildcards and ports that the
    kernel chooses may match any address."""
    if not brokers or not listens or any(_may_be(b, own) for b in brokers for own in listens):
        return ""
    at = ", ".join(f"{host}:{port}" for host, port in listens)
    return f"it listens at {at}"


def _may_be(broker: Address, own: Address) -> bool:
    if own[1] not in (0, broker[1]):
        return False
    theirs, mine = _ip(broker[0]), _ip(own[0])
    if theirs is None or mine is None or mine.is_unspecified:
        return True
    return theirs == mine or (theirs.is_loopback and mine.is_loopback)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
