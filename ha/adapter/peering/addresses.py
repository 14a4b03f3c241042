"""The addresses of brokers, as peerings are given them."""

from __future__ import annotations

from broker.security.loopback import is_loopback


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_near(host: str) -> bool:
    """Does what is sent there stay on this machine?"""
    return host.lower() == "localhost" or is_loopback(host)
