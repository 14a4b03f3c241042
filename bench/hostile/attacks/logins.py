"""1,000 sockets that log in with wrong passwords, and come again as soon as they are answered."""

from __future__ import annotations

import asyncio
import os

from bench.brokers import HOST
from bench.hostile.attacks.target import Target
from bench.wire import longstr, method, shortstr

SOCKETS = 1000
_SPREAD = [f"127.1.{n // 250}.{n % 250 + 1}" for n in range(SOCKETS)]
_CLOSE = "authentication_failure_close"


def logins(target: Target) -> None:
    """For ever, from one address. Each password is another one; the name is a configured user's."""
    asyncio.run(_crowd(target, [HOST] * SOCKETS))


def spread_logins(target: Target) -> None:
    """The same from as many addresses as sockets, so that no pause slows down the checks."""
    asyncio.run(_crowd(target, _SPREAD))


def peer_logins(target: Target) -> None:
    """The same as a peer, with the name that every pair has by default, and a wrong password."""
    asyncio.run(_crowd(target, _SPREAD, "ha", "understudy.ha-peer"))


async def _crowd(target: Target, sources: list[str], user: str = "", claim: str = "") -> None:
    """`claim`: a capability of the client."""
    capabilities = b"".join(shortstr(each) + b"t\x01" for each in (_CLOSE, claim) if each)
    table = shortstr("capabilities") + b"F" + longstr(capabilities)
    name = user or target.user
    await asyncio.gather(*(_one(target, source, name, table) for source in sources))


async def _one(target: Target, source: str, user: str, table: bytes) -> None:
    while True:
        try:
            await _try(target, source, user, table)
        except (OSError, EOFError):
            await asyncio.sleep(0.1)  # no port, or no place
        target.count.value += 1


async def _try(target: Target, source: str, user: str, table: bytes) -> None:
    reader, writer = await asyncio.open_connection(target.host, target.port, local_addr=(source, 0))
    try:
        writer.write(b"AMQP\0\0\x09\x01")
        await reader.readexactly(7)
        response = longstr(b"\0" + user.encode() + b"\0" + os.urandom(8).hex().encode())
        arguments = longstr(table) + shortstr("PLAIN") + response + shortstr("en_US")
        writer.write(method(0, 10, 11, arguments) + method(0, 10, 51))
        while await reader.read(65536):
            pass
    finally:
        writer.close()
