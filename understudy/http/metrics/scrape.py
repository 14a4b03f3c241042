"""Writes a long text to an HTTP client in slices of time, with all other clients in between.

Owner: the routes of metrics, one for each listener. However many scrape at a time, one turn of the event loop
writes one slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import perf_counter

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

SLICE = 0.002
"""Seconds of work in one turn of the event loop."""
HEADERS = {"Content-Type": CONTENT_TYPE_LATEST}


class Scrapes:
    """`patience`: seconds for a client to read the whole answer."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._turn = asyncio.Lock()

    async def answer(self, request: web.Request, pieces: Iterator[str]) -> web.StreamResponse:
        """A client that does not read in time is cut off."""
        response = web.StreamResponse(headers=HEADERS)
        try:
            async with asyncio.timeout(self._patience):
                await response.prepare(request)
                async for octets in self._slices(pieces):
                    await response.write(octets)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _slices(self, pieces: Iterator[str]) -> AsyncIterator[bytes]:
        more = True
        while more:
            async with self._turn:
                end, some = perf_counter() + SLICE, list[str]()
                more = False
                for piece in pieces:
                    some.append(piece)
                    if perf_counter() >= end:
                        more = True
                        break
                await asyncio.sleep(0)
            if text := "".join(some):
                yield text.encode(errors="replace")
