"""The line of the demo of federation: it delays, limits the rate, counts, and can be cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from understudy.demo.line import Line
from understudy.shared.addresses import HostPort

PATIENCE = 20


@contextmanager
def echo() -> Iterator[HostPort]:
    """Sends back whatever comes, over any number of connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(1 << 16):
                        connection.sendall(data)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield HostPort("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def exchanged(address: HostPort, octets: int) -> float:
    """How long so many octets take there and back."""
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        began = time.monotonic()
        threading.Thread(target=connection.sendall, args=(b"x" * octets,), daemon=True).start()
        got = 0
        while got < octets:
            got += len(connection.recv(1 << 16))
        return time.monotonic() - began


def test_a_line_delays_and_is_not_slower_for_it() -> None:
    with echo() as target, Line([target], 0.05) as line:
        assert exchanged(line.addresses[0], 1) >= 0.19  # its handshake is delayed, too
        assert 0.1 <= exchanged(line.addresses[0], 4 << 20) < PATIENCE / 2
        assert line.there == line.back == (4 << 20) + 1


def test_a_line_has_a_rate() -> None:
    with echo() as target, Line([target], 0.0, rate=200_000) as line:
        assert exchanged(line.addresses[0], 60_000) >= 0.25


def test_a_line_that_is_cut_ends_all_connections_and_lets_none_in() -> None:
    with echo() as target, Line([target, target], 0.0) as line:
        with socket.create_connection(line.addresses[1], timeout=PATIENCE) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            line.cut()
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        refused = suppress(ConnectionResetError)
        with refused, socket.create_connection(line.addresses[0], timeout=PATIENCE) as connection:
            assert connection.recv(1) == b""
        line.mend()
        exchanged(line.addresses[0], 1)
    line.close()
