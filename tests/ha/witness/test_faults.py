"""Faults that must not cost a live owner its lease, nor the witness its life."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from broker.amqp091.client import ClientConnection, Closed, ExtensionReceived, Opened
from broker.amqp091.server.handshake import MANAGEMENT_CAPABILITY
from broker.security.identity import WITNESS, User
from broker.server.clock import now, wall_ms
from broker.server.shell import Shell
from broker.settings import BrokerSettings
from broker.store.node_files import NodeFiles
from broker.store.store import NullStore
from ha.adapter.ledger_port import NullLedger
from ha.adapter.node import Node
from ha.adapter.settings import HaSettings
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from ha.core.wire.link import Method
from tests.ha.witness.test_register import FIRST, A, B, Desk, after, asks, swaps
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

DEADLINE = 20.0


def to(witness: Desk, time: float) -> None:
    """The witness lives until then."""
    while (due := witness.desk.next_deadline()) is not None and due <= time:
        witness.desk.timers(due)


def test_a_swap_that_cannot_be_saved_leaves_the_lease_of_the_owner() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    witness.ask(swaps(FIRST, None), 1.0)
    for second in range(2, 21):
        to(witness, second)
        witness.ask(asks("renew"), second)
    disk.failing["sync"] = 1
    assert witness.ask(swaps(after(FIRST, B, 131074), FIRST, B), 20.1)["outcome"] == "unknown"
    found = witness.ask(asks("read", B), 20.2)
    assert (found["record"], found["owner_gone"]) == (FIRST.as_json(), False)
    to(witness, 25.0)
    assert witness.ask(asks("read", B), 25.0)["owner_gone"] is True


def test_a_witness_that_stood_still_ends_no_lease_that_is_seldom_renewed() -> None:
    disk = VirtualDisk()
    disk.make_directory("/w")
    witness = Desk(disk)
    witness.ask(swaps(FIRST, None) | {"seconds": 60.0}, 0.0)
    to(witness, 14.0)
    assert witness.ask(asks("read", B, 60.0), 100.0)["owner_gone"] is False


def test_an_answer_that_does_not_fit_ends_the_connection_and_not_the_witness() -> None:
    many = frozenset(Incarnation(f"{number:032}", 1) for number in range(200))
    large = InSyncRecord("c" * 32, 65537, 1, A, many).as_json()

    async def scenario() -> None:
        users = (User("shop", frozenset({WITNESS}), password="secret"),)
        files = NodeFiles.open(VirtualDisk(), "/w", "w")
        node = Node(
            broker=BrokerSettings(users=users), ha=HaSettings(witness_for=("shop",)), store=NullStore(),
            files=files, ledger=NullLedger(), random_bytes=os.urandom, log=lambda told: None,
        )  # fmt: skip
        shell = Shell(node)
        node.start(now(), wall_ms())
        _, port = await shell.listen("127.0.0.1", 0)
        running = asyncio.create_task(shell.run())
        swap = asks("swap", expected=None, record=large)
        assert json.loads(await answered(port, swap, 131072))["outcome"] == "done"
        assert b"does not fit a frame" in await answered(port, asks("read"), 4096)
        assert json.loads(await answered(port, asks("read"), 131072))["record"] == large
        shell.request_stop()
        assert await running is None
        node.stop(now())
        await shell.close(0.0)
        files.close()

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await scenario()

    asyncio.run(bounded())


async def answered(port: int, request: dict[str, Any], frame_max: int) -> bytes:
    """The answer, or the reason of the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = ClientConnection(
        "shop", "secret", now(), capabilities={MANAGEMENT_CAPABILITY: True}, frame_max=frame_max
    )
    try:
        while True:
            writer.write(b"".join(client.take_output()))
            client.receive(await reader.read(65536), now())
            for event in client.events():
                match event:
                    case Opened():
                        client.send_extension(Method.WITNESS, json.dumps(request).encode())
                    case ExtensionReceived(payload=payload):
                        return payload
                    case Closed(text=text):
                        return text.encode()
    finally:
        writer.close()
