"""The control socket: who may open it, what it answers, what becomes of one that was left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from broker.security.authenticator import Authenticator
from broker.security.identity import default_users
from broker.security.logins import Logins
from tests.understudy.http.test_server import StandIn
from understudy.http.control import ControlServer

Asking = Callable[[aiohttp.ClientSession], Awaitable[None]]


class Disk:
    def look(self) -> dict[str, Any]:
        return {"stalled_for": 1.5, "latency": 0.2, "failed": None}


def serving(path: Path, asking: Asking, node: StandIn | None = None) -> StandIn:
    """What `asking` asks of a server there."""
    node = node or StandIn()

    async def run() -> None:
        server = _server(node)
        await server.start_at(path, Disk())  # type: ignore[arg-type]
        try:
            connector = aiohttp.UnixConnector(str(path))
            async with aiohttp.ClientSession("http://node", connector=connector) as session:
                await asking(session)
        finally:
            await server.close()

    asyncio.run(run())
    return node


def _server(node: StandIn) -> ControlServer:
    server = ControlServer(
        node, Logins(Authenticator(default_users())), clock=lambda: 1.0, tick_soon=node.tick
    )  # fmt: skip
    return server


def test_it_asks_for_no_password_and_tells_of_the_disk(tmp_path: Path) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        async with session.get("/api/status") as answer:
            found = await answer.json()
            assert found["disk"] == {"stalled_for": 1.5, "latency": 0.2, "failed": None}
            assert found["status"] == "active"
        for command in ("promote", "demote", "switchover"):
            async with session.post(f"/api/{command}") as answer:
                assert answer.status == 200

    node = serving(tmp_path / "control", asking)
    assert node.asked == [("promote", {"force_lossy": False}), ("demote", {}), ("switchover", {"to": None})]


def test_it_is_told_who_is_fenced_and_takes_nothing_else(tmp_path: Path) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        for body, code in (({"fenced": "b"}, 200), ({"fenced": True}, 400), ({"forced": "b"}, 400)):
            async with session.post("/api/promote", json=body) as answer:
                assert answer.status == code, body

    assert serving(tmp_path / "control", asking).asked == [("promote", {"force_lossy": False, "fenced": "b"})]


def test_definitions_are_declared_as_somebody(tmp_path: Path) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        async with session.post("/api/definitions", json={}) as answer:
            assert answer.status == 401

    serving(tmp_path / "control", asking)


def test_its_owner_alone_may_open_it_and_it_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "control"

    async def asking(_session: aiohttp.ClientSession) -> None:
        assert path.stat().st_mode & 0o777 == 0o600

    before = os.umask(0)
    try:
        serving(path, asking)
    finally:
        os.umask(before)
    assert not path.exists()


def test_one_that_a_dead_process_left_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(OSError, match="in use"):
            asyncio.run(_server(StandIn()).start_at(path))
    assert path.is_socket(), "closed, and left behind"

    async def asking(session: aiohttp.ClientSession) -> None:
        async with session.get("/health/live") as answer:
            assert answer.status == 200

    serving(path, asking)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "control"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        asyncio.run(_server(StandIn()).start_at(path))
    assert path.read_text() == "mine"


def test_the_end_of_one_does_not_remove_the_socket_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "control"

    async def run() -> None:
        first = _server(StandIn())
        await first.start_at(path)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            await first.close()

    asyncio.run(run())
    assert path.is_socket()
