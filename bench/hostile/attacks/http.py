"""Visitors of `broker.http` without a login: who takes up its places, and a page in an operator's browser."""

from __future__ import annotations

import asyncio

from bench.hostile.attacks.target import Target

SILENT, DRIPPING = 300, 100
BROWSERS, ASKED = 8, 50
_PAUSE = 0.1
_BODY = b'{"force_lossy": true}'


def silence(target: Target) -> None:
    """300 connections that say nothing, and 100 whose heads come an octet at a time. Each comes again as soon
    as it is closed."""
    asyncio.run(_silence(target))


async def _silence(target: Target) -> None:
    await asyncio.gather(*(_sit(target, drips=n < DRIPPING) for n in range(SILENT + DRIPPING)))


async def _sit(target: Target, *, drips: bool) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection(target.host, target.http)
            ended = asyncio.ensure_future(reader.read())
            if drips:
                writer.write(b"GET / HTTP/1.1\r\nX: ")
            while not ended.done():
                await asyncio.wait([ended], timeout=_PAUSE if drips else None)
                if drips:
                    writer.write(b"x")
            await asyncio.gather(ended, return_exceptions=True)  # however it has ended
            writer.close()
        except OSError:
            await asyncio.sleep(_PAUSE)
        target.count.value += 1


def foreign_origins(target: Target) -> None:
    """Commands of a page of another site, fifty in one write on each of eight connections."""
    asyncio.run(_foreign(target))


async def _foreign(target: Target) -> None:
    await asyncio.gather(*(_browse(target) for _ in range(BROWSERS)))


async def _browse(target: Target) -> None:
    head = (
        f"POST /api/promote HTTP/1.1\r\nHost: {target.host}:{target.http}\r\nOrigin: http://evil.example\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n"
    )
    strike = (head.encode() + _BODY) * ASKED
    while True:
        try:
            reader, writer = await asyncio.open_connection(target.host, target.http)
            while not reader.at_eof():
                writer.write(strike)
                for _ in range(ASKED):
                    await reader.readuntil(b"HTTP/1.1 403 ")
                    target.count.value += 1
        except (OSError, EOFError):
            await asyncio.sleep(_PAUSE)
