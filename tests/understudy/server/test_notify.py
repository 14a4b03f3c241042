"""What a manager is told of a start, as by sd_notify: real datagrams."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.server.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.settimeout(10)
        yield found


def words(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_a_start_from_its_first_word_to_its_last(manager: socket.socket, tmp_path: Path) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000", "HOME": "/"}

    async def run() -> None:
        notifier = Notifier(environ)
        notifier.starting("reads\nthe store")
        assert words(manager) == ["STATUS=reads the store", "EXTEND_TIMEOUT_USEC=600000000"]
        notifier.ready("takes connections")
        assert words(manager) == ["READY=1", "STATUS=takes connections", f"MAINPID={os.getpid()}"]
        assert words(manager) == ["WATCHDOG=1"]
        notifier.starting("a word of the log")
        await asyncio.sleep(0)  # nothing comes of it; the loop turns, and the next sign of life is due
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, words, manager) == ["WATCHDOG=1"]
        notifier.close()
        notifier.stopping()
        assert words(manager) == ["STOPPING=1", "STATUS=stopping"]

    asyncio.run(run())
    assert environ == {"HOME": "/"}, "children are not to speak in its name"


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}])
def test_no_signs_of_life_unless_they_are_wanted_of_it(
    manager: socket.socket, tmp_path: Path, more: dict[str, str]
) -> None:
    async def run() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), **more})
        notifier.ready("")
        notifier.stopping()
        notifier.close()

    asyncio.run(run())
    assert words(manager)[0] == "READY=1"
    assert words(manager)[0] == "STOPPING=1"


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the kernel picks a name that starts with a zero byte
        manager.settimeout(10)
        Notifier({"NOTIFY_SOCKET": "@" + manager.getsockname()[1:].decode()}).stopping()
        assert words(manager)[0] == "STOPPING=1"


def test_nobody_is_told_where_nobody_listens(tmp_path: Path) -> None:
    for environ in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        Notifier(environ).stopping()
