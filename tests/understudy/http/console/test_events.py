"""The stream of events: what changed, at once; bounded; and no look at the node while nobody listens."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from broker.security.authenticator import Authenticator
from broker.security.identity import default_users
from broker.security.logins import Logins
from tests.understudy.http.test_server import StandIn
from understudy.http import server
from understudy.http.console import events
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort

GUEST = {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"}
LONGEST = 10.0


class Watched(StandIn):
    """Counts how often somebody looked."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def status(self) -> dict[str, Any]:
        self.looks += 1
        return super().status()


@pytest.fixture(autouse=True)
def no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in has none."""
    monkeypatch.setattr(events, "rates_of", lambda _room: {})


@asynccontextmanager
async def door(node: StandIn) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    logins = Logins(Authenticator(default_users()))
    opened = HttpServer(node, logins, clock=lambda: 1.0, tick_soon=lambda: None)
    at = await opened.start(HostPort("127.0.0.1", 0))
    async with aiohttp.ClientSession(headers=GUEST) as session:
        try:
            yield session, f"http://{at}/api/events"
        finally:
            await opened.close()


async def told(answer: aiohttp.ClientResponse, name: str) -> dict[str, Any]:
    """The next event of that name."""
    async with asyncio.timeout(LONGEST):
        while True:
            line = (await answer.content.readline()).decode()
            if line == f"event: {name}\n":
                data = (await answer.content.readline()).decode()
                found: dict[str, Any] = json.loads(data.removeprefix("data: "))
                return found


def test_a_change_is_told_to_all_who_listen_and_nothing_runs_when_they_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "LOOK", 0.01)

    async def run() -> None:
        node = Watched()
        async with door(node) as (session, url):
            assert node.looks == 0
            async with session.get(url) as one, session.get(url) as other:
                assert one.headers["Content-Type"] == "text/event-stream"
                for answer in (one, other):
                    assert (await told(answer, "status"))["status"] == "active"
                node.state = "ready"
                for answer in (one, other):
                    while (await told(answer, "status"))["status"] != "ready":
                        pass
            async with asyncio.timeout(LONGEST):
                while any("Events._run" in repr(task.get_coro()) for task in asyncio.all_tasks()):
                    await asyncio.sleep(0)

    asyncio.run(run())


def test_a_node_that_stops_ends_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for them otherwise, as for a request that is under way."""
    monkeypatch.setattr(server, "_GOODBYE", LONGEST)

    async def run() -> float:
        async with door(Watched()) as (session, url):
            answer = await session.get(url)
            await told(answer, "status")
            began = asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(run()) < LONGEST / 2


def test_the_number_of_listeners_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST", 2)

    async def run() -> tuple[int, dict[str, Any]]:
        async with (
            door(Watched()) as (session, url),
            session.get(url),
            session.get(url),
            session.get(url) as third,
        ):
            return third.status, await third.json()

    status, said = asyncio.run(run())
    assert (status, said["code"]) == (503, "http-events-full")


def test_a_listener_that_reads_late_gets_the_newest_state_and_no_backlog() -> None:
    async def run() -> dict[str, bytes]:
        listener = events._Listener(is_monitor=True)
        for at in range(1000):
            listener.tell("status", b"%d" % at)
        listener.tell("overview", b"rates")
        return listener.due

    assert asyncio.run(run()) == {"status": b"999", "overview": b"rates"}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic !"}])
def test_without_a_login_there_are_no_events(headers: dict[str, str]) -> None:
    async def run() -> int:
        async with (
            door(Watched()) as (_, url),
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers) as answer,
        ):
            return answer.status

    assert asyncio.run(run()) == 401
