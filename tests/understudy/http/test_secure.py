"""HTTP over TLS: logins, changed certificates, and connections that never finish their handshake."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from broker.security.authenticator import Authenticator
from broker.security.identity import default_users
from broker.security.logins import Logins
from tests.tls import Authority
from tests.understudy.http.test_server import GUEST, StandIn
from understudy.http.places import Limits
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort


def visit(
    context: Callable[[], ssl.SSLContext], script: Callable[[HttpServer, HostPort], Awaitable[None]],
    visitors: int = 10,
) -> None:  # fmt: skip
    async def run() -> None:
        server = HttpServer(
            StandIn(), Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=lambda: None,
            secure=context, visitors=visitors, limits=Limits(head=0.3),
        )  # fmt: skip
        at = await server.start(HostPort("127.0.0.1", 0))
        try:
            async with asyncio.timeout(10):
                await script(server, at)
        finally:
            await server.close()

    asyncio.run(run())


def test_a_changed_certificate_counts_for_the_next_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    contexts = [authority.node(name, "127.0.0.1").clients for name in ("one", "two")]

    async def script(server: HttpServer, at: HostPort) -> None:
        seen = []
        for _ in range(2):
            async with aiohttp.ClientSession() as session:
                url = f"https://{at}/api/whoami"
                async with session.get(url, ssl=authority.client(), **GUEST) as answer:
                    assert (await answer.json())["name"] == "guest"
            _, writer = await asyncio.open_connection(*at, ssl=authority.client(), server_hostname=at.host)
            seen.append(writer.get_extra_info("ssl_object").getpeercert()["serialNumber"])
            writer.close()
            contexts.reverse()
        assert len(set(seen)) == 2 and server.room.listeners[-1].protocol == "https"

    visit(lambda: contexts[0], script)


def test_strangers_to_tls_keep_nobody_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Some speak plain HTTP, some say nothing: their places are free for others, at once if need be."""
    authority = Authority(tmp_path)
    context = authority.node("one", "127.0.0.1").clients

    async def script(server: HttpServer, at: HostPort) -> None:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        silent = [await asyncio.open_connection(*at) for _ in range(6)]
        url = f"https://{at}/health/live"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=authority.client()) as answer:
            assert answer.status == 200
        for quiet, own in silent:
            assert await quiet.read() == b""
            own.close()
        writer.close()

    with caplog.at_level(logging.INFO):
        visit(lambda: context, script, visitors=3)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
