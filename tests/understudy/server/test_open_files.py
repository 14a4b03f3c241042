"""A process that may open no more files: connections are refused before, and nothing else suffers."""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.server.listener import listen
from broker.server.shell import RESERVE
from tests.understudy.serving import PATIENCE, serving
from understudy.http.places import VISITORS
from understudy.server.daemon import resident_bytes
from understudy.server.open_files import room_of
from understudy.shared.addresses import HostPort


@contextmanager
def no_more_files() -> Iterator[None]:
    """As many as there are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as lowest:
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_is_known_while_no_file_can_be_opened() -> None:
    assert resident_bytes() > 0
    with no_more_files():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        assert resident_bytes() > 0


def test_a_connection_that_cannot_be_taken_is_told_of_once() -> None:
    told: list[str] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        failed = asyncio.Event()

        def tell(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            told.append(context["message"])
            failed.set()

        loop.set_exception_handler(tell)
        server = await listen(asyncio.Protocol, "127.0.0.1", 0)
        with ExitStack() as clients:
            for _ in range(3):
                client = socket.socket()
                clients.enter_context(client)
                client.setblocking(False)
                with pytest.raises(BlockingIOError):
                    client.connect(server.sockets[0].getsockname())
            with no_more_files():
                await asyncio.wait_for(failed.wait(), PATIENCE)
            server.close()

    asyncio.run(scene())
    assert told == ["socket.accept() out of system resource"]


def test_the_kernel_is_told_of_the_whole_backlog() -> None:
    async def scene() -> int:
        server = await listen(asyncio.Protocol, "127.0.0.1", 0, backlog=7)
        told = server.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        server.close()
        return int(struct.unpack("=8x6I", told)[-1])  # of a listener, tcpi_sacked is its backlog

    assert asyncio.run(scene()) == 7


@pytest.mark.parametrize("limit", [20, 100, 1024, 4096, 65536])
def test_connections_leave_room_for_files(limit: int) -> None:
    clients, reserve, lingering, visitors = room_of(limit)
    assert clients > 0 and reserve > 0
    assert 0 < visitors <= VISITORS
    assert clients + 2 * (visitors + reserve) + lingering <= limit - min(128, limit // 4)


def test_there_is_room_for_all_under_systemd() -> None:
    clients, reserve, _, visitors = room_of(65536)
    assert clients > 60_000 and (reserve, visitors) == (RESERVE, VISITORS)


@pytest.mark.parametrize("door", ["AMQP", "HTTP"])
def test_a_node_lives_through_more_connections_than_it_may_have_files(door: str, tmp_path: Path) -> None:
    few = ("sh", "-c", 'ulimit -n 100; exec "$@"', "sh")
    with serving(tmp_path / "data", prefix=few) as node:
        at = node.amqp if door == "AMQP" else node.http
        with ExitStack() as crowd:
            clients = [crowd.enter_context(socket.create_connection(at)) for _ in range(120)]
            _wait_for_one_that_is_closed(clients)
            other = node.http if door == "AMQP" else node.amqp
            assert _answers_at(other)
        assert node.stop() == 0
        # asyncio of 3.13 fails, and says so, where it collects a connection that came as its server closed.
        known = sum("_SelectorTransport.__del__" in line for line in node.log)
        assert sum("Traceback" in line for line in node.log) == (known if sys.version_info >= (3, 13) else 0)
        assert len(node.log) < 300


def _wait_for_one_that_is_closed(clients: list[socket.socket]) -> None:
    with selectors.DefaultSelector() as selector:
        for each in clients:
            selector.register(each, selectors.EVENT_READ)
        assert selector.select(PATIENCE)


def _answers_at(address: HostPort) -> bool:
    """Something; neither protocol knows this one."""
    with socket.create_connection(address, PATIENCE) as client:
        client.sendall(b"HELLO\r\n\r\n")
        return bool(client.recv(100))
