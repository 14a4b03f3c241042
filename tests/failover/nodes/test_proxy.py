"""The proxy that cuts links: to the byte, by reset or by end of file, and shut until it is armed again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.failover.nodes.cluster import PATIENCE
from tests.failover.nodes.proxy import Cut, LinkProxy
from understudy.shared.addresses import HostPort

SPEECH = bytes(range(250)) * 40


@pytest.fixture
def speaker() -> Iterator[HostPort]:
    """Says the same to everybody, then waits for their end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def speak() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=say, args=(connection,), daemon=True).start()

    def say(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(SPEECH)
            connection.recv(1)

    threading.Thread(target=speak, daemon=True).start()
    yield HostPort(*listener.getsockname())
    listener.close()


def hear(address: HostPort, enough: int = len(SPEECH)) -> tuple[bytes, str]:
    """What comes, up to `enough` bytes, and how it ended."""
    heard = b""
    try:
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            while len(heard) < enough:
                data = connection.recv(4096)
                if not data:
                    return heard, "FIN"
                heard += data
    except ConnectionResetError:  # perhaps even before `connect` has returned
        return heard, "RST"
    return heard, ""


@pytest.mark.parametrize("how", ["RST", "FIN"])
def test_the_link_is_cut_after_so_many_bytes_and_no_more(speaker: HostPort, how: Cut, seed: int) -> None:
    with LinkProxy(speaker) as proxy:
        assert hear(proxy.address) == (SPEECH, "")
        for after in (1, 2, seed % len(SPEECH) or 1, len(SPEECH) - 1):
            proxy.arm(after, how)
            heard, end = hear(proxy.address)
            assert end == how
            assert proxy.was_cut.wait(PATIENCE)
            assert proxy.passed == after
            assert SPEECH.startswith(heard)
            assert len(heard) == after if how == "FIN" else len(heard) <= after, "a reset may overtake"
            assert hear(proxy.address) == (b"", "FIN"), "shut until it is armed again"
        proxy.disarm()
        assert hear(proxy.address) == (SPEECH, "")
