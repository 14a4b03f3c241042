"""The HTTP API while passwords are checked elsewhere."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from broker.security.authenticator import Authenticator, Login
from broker.security.check_queue import MOST
from broker.security.logins import BUSY, Logins
from tests.hostile.checker import WORD, Checker, users
from tests.hostile.test_strangers import until
from tests.understudy.http.test_server import StandIn
from understudy.http import logins
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort

Post = Callable[[str, str], Awaitable[tuple[int, dict[str, Any]]]]


def served(visit: Callable[[Checker, Post], Awaitable[None]]) -> Checker:
    """A node whose passwords the test checks; `visit` asks it to promote, as whom it likes."""
    checker = Checker(Logins(Authenticator(users("app"), allow_plain_without_tls=True)))

    async def run() -> None:
        server = HttpServer(StandIn(), checker.logins, clock=lambda: 1.0, tick_soon=lambda: None)
        at = await server.start(HostPort("127.0.0.1", 0))
        async with aiohttp.ClientSession() as session:

            async def post(name: str, password: str) -> tuple[int, dict[str, Any]]:
                word = b64encode(f"{name}:{password}".encode()).decode()
                headers = {"Authorization": f"Basic {word}"} if name else {}
                async with session.post(f"http://{at}/api/promote", headers=headers, json={}) as answer:
                    return answer.status, await answer.json()

            try:
                await visit(checker, post)
            finally:
                await server.close()

    asyncio.run(run())
    return checker


def test_a_visitor_waits_for_the_check_and_others_do_not() -> None:
    async def visit(checker: Checker, post: Post) -> None:
        waits = [asyncio.create_task(post("app", password)) for password in (WORD, "wrong")]
        await until(lambda: checker.logins.waiting == 2)
        assert (await post("op", "op"))[0] == 200
        assert (await post("", ""))[0] == 401
        assert not any(each.done() for each in waits)
        checker.run(1.0)
        assert [(await each)[0] for each in waits] == [403, 401]

    assert served(visit).made == ["app", "app"]


def test_beyond_the_room_of_the_queue_it_is_told_to_come_again() -> None:
    async def visit(checker: Checker, post: Post) -> None:
        for n in range(MOST):
            checker.logins.ask(Login("app", f"wrong {n}", "127.0.0.1", loopback=True), print, 1.0)
        assert await post("app", "other") == (
            503,
            {"ok": False, "code": "http-logins-busy", "reason": BUSY, "error": "service_unavailable"},
        )

    served(visit)


def test_who_waits_too_long_is_told_so_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "_PATIENCE", 0.0)

    async def visit(checker: Checker, post: Post) -> None:
        assert (await post("app", WORD))[0] == 503
        assert checker.logins.waiting == 0

    assert served(visit).made == []
