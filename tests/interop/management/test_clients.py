"""Clients of RabbitMQ's HTTP API, one after another at one broker; and at a pair, after a failover."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.failover.nodes.pair import Pair
from tests.interop.management import admin
from tests.interop.management.cases import BY_ADMIN, QUICK, SLOW, Case
from tests.interop.management.place import Place
from tests.ports import free_ports
from tests.understudy.serving import serving
from understudy.shared.addresses import HostPort


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("node") / "data") as node:
        yield Place(node.amqp, node.http)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.__name__)
def test_a_client_of_rabbitmq_finds_what_it_asks_for(place: Place, case: Case) -> None:
    case(place)


@pytest.mark.system
def test_all_of_them_find_it_at_the_other_node_after_a_failover(tmp_path: Path) -> None:
    cases = [*QUICK, *(BY_ADMIN if admin.is_there() else ())]
    with Pair(tmp_path) as pair, ThreadPoolExecutor() as pool:
        ports = dict(zip(pair.addresses, free_ports(2), strict=True))
        pair.own = {name: (f"broker.http=127.0.0.1:{port}",) for name, port in ports.items()}
        pair.whole()
        left, right = (
            Place(address, HostPort("127.0.0.1", ports[name])) for name, address in pair.addresses.items()
        )
        left.does("PUT", "queues/%2F/made-before", {"durable": True}, 201)
        refused = right.ask("PUT", "queues/%2F/too-early", {"durable": True})
        assert refused.status == 503 and str(left.amqp) in refused.body["reason"]
        assert right.ask("GET", "queues/%2F/made-before").status == 200, "a backup tells what it has"
        pair.kill("left")
        assert pair.ask("right", "promote")["ok"]
        assert right.get("queues/%2F/made-before")["durable"] is True
        slow = [pool.submit(case, right) for case in SLOW]
        for case in cases:
            case(right)
        for each in slow:
            each.result()
