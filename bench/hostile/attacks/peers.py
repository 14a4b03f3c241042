"""Somebody with the pair's password who tells of epochs that nobody minted."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from bench.hostile.attacks.target import PEER_PASSWORD, Target
from broker.amqp091.client import ClientConnection, ClientEvent, Closed, Opened
from ha.core.wire.link import VERSION, Method

FAR = 2**40 + 1
LIARS = 4
_NODE = "e" * 32
_SILENCE = 0.2
"""Seconds after which a liar that is not closed leaves."""


def far_epochs(target: Target) -> None:
    """Hellos with an epoch, a position or a record that is far away, and requests to join with such an epoch;
    on four sockets, and again as soon as they are closed."""
    with urllib.request.urlopen(f"http://{target.host}:{target.http}/api/status") as answer:
        found = json.load(answer)
    for _ in range(1, LIARS):
        threading.Thread(target=_lie, args=(target, found), daemon=True).start()
    _lie(target, found)


def _lie(target: Target, found: dict[str, Any]) -> None:
    cluster, epoch = found["cluster_id"], found["epoch"]
    record = {
        "cluster_id": cluster, "epoch": FAR, "revision": 1, "owner": [_NODE, 1], "in_sync": [],
        "names": {_NODE: "liar"},
    }  # fmt: skip
    lies: list[tuple[Method, dict[str, Any]]] = [
        (Method.HELLO, {"epoch": FAR, "serving": True}), (Method.HELLO, {"epoch": FAR, "record": record}),
        (Method.HELLO, {"epoch": epoch, "seen": FAR}), (Method.HELLO, {"epoch": epoch, "position": [FAR, 1]}),
        (Method.HELLO, {"epoch": epoch, "record": record}), (Method.JOIN, {"epoch": FAR}),
    ]  # fmt: skip
    me = {
        "node_id": _NODE, "name": "liar", "incarnation": 1, "number": 77, "cluster_id": cluster, "seen": 0,
        "status": "joining", "serving": False, "position": [0, 0], "incomplete": False, "version": VERSION,
        "record": None,
    }  # fmt: skip
    while True:
        for method, lie in lies:
            try:
                _say(target, method, json.dumps(me | lie).encode())
            except OSError:
                time.sleep(0.01)
            target.count.value += 1


def _say(target: Target, method: Method, lie: bytes) -> None:
    """Until it is closed for it, or has been silent for a while."""
    claim = {"understudy.ha-peer": True}
    client = ClientConnection("ha", PEER_PASSWORD, 0.0, capabilities=claim, heartbeat=0)
    with socket.create_connection((target.host, target.port), _SILENCE) as sock:
        for event in _events(client, sock):
            if isinstance(event, Opened):
                client.send_extension(method, lie)
            elif isinstance(event, Closed):
                return


def _events(client: ClientConnection, sock: socket.socket) -> Iterator[ClientEvent]:
    while True:
        sock.sendall(b"".join(client.take_output()))
        data = sock.recv(65536)
        if not data:
            return
        client.receive(data, 0.0)
        yield from client.events()
