"""Asks the broker over its control socket. HTTP/1.0 by hand: importing the standard library's client takes
longer than all the rest of a monitor."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

_MOST = 16 << 20


class NoAnswer(Exception):
    """There is no answer; `str()` says why, in a few words."""


class NobodyThere(NoAnswer):
    """There is no socket, or nothing listens at it."""


def ask(
    path: str, method: str, target: str, timeout: float, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """Code and JSON of the answer. `timeout`: seconds for all of it. Raises NoAnswer."""
    deadline = time.monotonic() + timeout
    payload = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(payload)}\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(timeout)
            _connect(link, path)
            link.sendall(head.encode() + payload)
            raw = _read_all(link, deadline)
    except socket.timeout:  # noqa: UP041 (another one before Python 3.10)
        raise NoAnswer(f"no answer within {timeout:g} s") from None
    except OSError as error:
        raise NoAnswer(f"its control socket fails: {error.strerror or error}") from None
    return _parsed(raw)


def _connect(link: socket.socket, path: str) -> None:
    try:
        link.connect(path)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NobodyThere(f"nobody listens at {path}: {error.strerror}") from None


def _read_all(link: socket.socket, deadline: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout  # noqa: UP041
        link.settimeout(left)
        piece = link.recv(65536)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > _MOST:
            raise NoAnswer("its answer has no end")


def _parsed(raw: bytes) -> tuple[int, Any]:
    head, _, body = raw.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise NoAnswer("what it answers is no HTTP")
    try:
        return int(words[1]), json.loads(body)
    except ValueError:
        raise NoAnswer("what it answers is no JSON") from None
