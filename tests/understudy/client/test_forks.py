"""Client kits in a program that forks, as workers of Celery do: what is the parent's stays so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.understudy.broker_thread import BrokerThread
from understudy import client

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)
PROGRAM = """
import json, os, sys
from importlib import import_module

kit, address, ledgers = import_module(sys.argv[1]), sys.argv[2], sys.argv[3]

def tried(what):
    try:
        what()
    except RuntimeError as error:
        return str(error)

def descriptors():
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            continue
        if target.startswith("socket:") or target.endswith(".jsonl"):
            yield target

shop = kit.Publisher(address, "shop", ledgers)
billing = kit.Consumer(address, "orders", "billing", ledgers)
with shop, billing:
    shop.publish(b"0", "orders")
    shop.flush(20)
    while (first := billing.receive(1)) is None:
        pass
    shop.publish(b"1", "orders")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = [list(descriptors()), shop.in_doubt]
        said += map(tried, (
            lambda: shop.publish(b"2", "orders"), shop.connect, shop.poll, shop.flush,
            billing.connect, lambda: billing.receive(1), lambda: billing.ack(first),
            lambda: billing.reject(first, requeue=True), lambda: next(billing.deliveries()), billing.flush,
        ))
        with kit.Publisher(address, "child", ledgers) as own:
            own.publish(b"2", "orders")
        os.write(writing, json.dumps(said).encode())
        sys.exit()  # by way of both `with`
    os.close(writing)
    os.waitpid(child, 0)
    shop.flush(20)
    billing.ack(first)
    got = []
    for delivery in billing.deliveries(until=lambda: len(got) == 2):
        got.append(bytes(delivery.body, "ascii") if isinstance(delivery.body, str) else bytes(delivery.body))
    said = json.loads(os.read(reading, 65536))
    counts = [shop.failover.connects, billing.failover.connects, shop.counts.confirmed, shop.counts.resent]
got = sorted(map(bytes.decode, got))
print(json.dumps({"child": said, "counts": counts, "acked": billing.counts.acked, "got": got}))
"""


@pytest.mark.parametrize("kit", ["understudy.client", "understudy.client.amqp10"])
def test_a_child_has_no_part_in_its_parents_connections_and_ledgers(kit: str, tmp_path: Path) -> None:
    if kit.endswith("amqp10"):
        pytest.importorskip("proton")
    protocols = import_module("broker.amqp10.connection").PROTOCOLS if kit.endswith("amqp10") else None
    with BrokerThread(protocols=protocols) as broker:
        with client.Publisher(str(broker.address), "declarer", declare=[ORDERS]) as declarer:
            declarer.connect(20)
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, kit, str(broker.address), str(tmp_path)],
            stdout=subprocess.PIPE, timeout=60, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
        )  # fmt: skip
    said = json.loads(run.stdout)
    of_publisher, of_consumer = (
        f"the {which} was created before a fork, and belongs to the parent: create one in each process"
        for which in ("publisher", "consumer")
    )
    assert said["child"] == [
        [], 0, of_publisher, of_publisher, of_publisher, None,
        of_consumer, of_consumer, of_consumer, of_consumer, of_consumer, None,
    ]  # fmt: skip
    assert said["counts"] == [1, 1, 2, 0]
    assert said["got"] == ["1", "2"]
    assert said["acked"] == 3
    for writer in ("shop", "billing", "child"):
        (ledger,) = tmp_path.glob(f"{writer}-*.jsonl")
        lines = [json.loads(line) for line in ledger.read_text().splitlines()]
        assert [line["wseq"] for line in lines] == list(range(len(lines)))
        assert [line["kind"] for line in lines].count("seal") == 1
