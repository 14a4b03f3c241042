"""The headers of each response that keep browsers from doing anything with it that is not wanted.

Owner: `HttpServer`, which adds them to all responses. A handler that sets one of these headers itself keeps
its own: the console allows its own scripts.
"""

from __future__ import annotations

from aiohttp import web

_ALL = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """A handler of aiohttp's `on_response_prepare`."""
    for name, value in _ALL.items():
        response.headers.setdefault(name, value)
