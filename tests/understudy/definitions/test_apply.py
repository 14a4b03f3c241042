"""An import with real py-amqp over real sockets, on a broker in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import amqp
import pytest

from broker.model.octets import as_octets
from ha.adapter.management.definitions_view import definitions_of
from tests.broker.server.live import Live, live_broker
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.definitions.made import binding, exchange, file_of, names, queue
from understudy.definitions.apply import BATCH, ImportOutcome, carry_out, summary_of
from understudy.definitions.parse import Definitions, validated
from understudy.definitions.plan import ImportPlan, plan_of
from understudy.shared.addresses import HostPort

NOTHING = Definitions()


@pytest.fixture
def live() -> Iterator[Live]:
    with live_broker() as broker:
        yield broker


def run(live: Live, plan: ImportPlan, password: str = "guest") -> ImportOutcome:
    return carry_out(plan, HostPort(live.host, live.port), "guest", password, 10.0)


def declared(live: Live) -> dict[str, Any]:
    return {name: dict(queue.arguments) for name, queue in live.broker.vhost.queues.items()}


TABLE = {
    "text": "ä", "number": 3, "wide": 2**40, "low": -(2**40), "least": -(2**63), "real": 1.5, "whole": 2.0,
    "yes": True, "none": None, "list": [1, "a", {"b": False}], "octets": {"$bytes": "YWJj"},
    "decimal": {"$decimal": "1.50"},
}  # fmt: skip


def test_arguments_arrive_as_the_kinds_that_the_file_has(live: Live) -> None:
    file = file_of(
        queues=[queue(arguments=TABLE)],
        exchanges=[exchange(type="headers", internal=True, arguments=TABLE), exchange("y", auto_delete=True)],
        bindings=[binding(arguments=TABLE), binding("x", "y", destination_type="exchange")],
    )
    assert run(live, plan_of(file, NOTHING)).whole
    vhost = live.broker.vhost
    made = vhost.exchanges["x"]
    (of_queue,) = [b for b in made.bindings.values() if b.target is vhost.queues["q"]]
    for found in (vhost.queues["q"].arguments, made.arguments, of_queue.arguments):
        assert repr(found) == repr(file.queues[0].arguments)
    assert (made.internal, made.durable, made.auto_delete, made.type.value) == (True, True, False, "headers")
    assert vhost.exchanges["y"].auto_delete
    assert len(made.bindings) == 2


def test_a_key_that_is_no_text_is_bound_as_octets(live: Live) -> None:
    keys: list[Any] = [{"$bytes": "/wA="}, {"$bytes": "7aCA"}, "a\0", "ä"]
    bindings = [binding(routing_key=key) for key in keys]
    assert run(
        live, plan_of(file_of(queues=[queue()], exchanges=[exchange()], bindings=bindings), NOTHING)
    ).whole
    bound = live.broker.vhost.exchanges["x"].bindings.values()
    octets = [b"\xff\0", b"\xed\xa0\x80", b"a\0", "ä".encode()]
    assert [as_octets(each.routing_key) for each in bound] == octets
    told = definitions_of(live.broker.vhost.shared, [], {"status": "active"}, {})["bindings"]
    assert [each["routing_key"] for each in told] == keys


def test_the_second_time_everything_is_there_and_nothing_changes(live: Live) -> None:
    file = file_of(queues=[queue(), queue("r")], exchanges=[exchange()], bindings=[binding()])
    first = run(live, plan_of(file, NOTHING))
    assert dict(first.new) == {"exchanges": 1, "queues": 2, "bindings": 1}
    generation = live.broker.vhost.generation
    there = validated(file.model_dump())
    second = run(live, plan_of(file, there))
    assert (dict(second.new), dict(second.there)) == ({}, {"exchanges": 1, "queues": 2, "bindings": 1})
    assert live.broker.vhost.generation == generation


def test_what_the_broker_refuses_is_told_one_by_one_and_the_rest_goes_on(live: Live) -> None:
    with amqp.Connection(f"{live.host}:{live.port}") as other:
        channel = other.channel()
        channel.queue_declare("q150", durable=False, auto_delete=False)
        channel.queue_declare("q250", exclusive=True)
        channel.exchange_declare("x", "fanout", durable=True, auto_delete=False)
        count = 2 * BATCH + 7
        file = file_of(
            queues=[queue(f"q{number}") for number in range(count)],
            exchanges=[exchange(), exchange("y")],
            bindings=[binding(source, f"q{number}") for number in (149, 250, 300) for source in ("x", "y")],
        )
        steps: list[int] = []
        address = HostPort(live.host, live.port)
        outcome = carry_out(plan_of(file, NOTHING), address, "guest", "guest", 10.0, steps.append)
    assert [line.partition(": 4")[0] for line in outcome.refused] == [
        "exchange 'x'", "queue 'q150'", "queue 'q250'",
        "binding of queue 'q250' to 'x' with key 'k'", "binding of queue 'q250' to 'y' with key 'k'",
    ]  # fmt: skip
    assert "406 PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x'" in outcome.refused[0]
    assert "406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q150'" in outcome.refused[1]
    assert "405 RESOURCE_LOCKED" in outcome.refused[2]
    assert dict(outcome.new) == {"exchanges": 1, "queues": count - 2, "bindings": 4}
    assert not outcome.why
    assert sum(steps) == count + 2 + 6
    vhost = live.broker.vhost
    assert all(f"q{number}" in vhost.queues for number in range(count) if number != 250)
    assert not vhost.queues["q150"].durable
    summary = summary_of(plan_of(file, NOTHING), outcome, dry_run=False)
    assert (summary["ok"], summary["refused"]) == (False, outcome.refused)


def test_more_may_be_refused_than_a_connection_has_channels(live: Live) -> None:
    count = live.broker.settings.channel_max + BATCH
    assert run(live, plan_of(file_of(queues=[queue(f"q{n}") for n in range(count)]), NOTHING)).whole
    other = file_of(queues=[queue(f"q{n}", durable=n >= count) for n in range(2 * count)])
    outcome = run(live, plan_of(other, NOTHING))
    assert (len(outcome.refused), outcome.new["queues"], outcome.why) == (count, count, "")


def test_a_wrong_password_or_a_broker_that_is_gone_is_said(live: Live) -> None:
    plan = plan_of(file_of(queues=[queue()]), NOTHING)
    refused = run(live, plan, "wrong")
    assert "ACCESS_REFUSED" in refused.why
    assert not refused.whole
    with live_broker() as gone:
        address = HostPort(gone.host, gone.port)
    nowhere = carry_out(plan, address, "guest", "guest", 10.0)
    assert "refused" in nowhere.why.lower()
    assert declared(live) == {}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_ends_on_the_way_is_said_with_how_far_it_was(end: str) -> None:
    plan = plan_of(file_of(queues=[queue(f"q{number}") for number in range(3 * BATCH)]), NOTHING)
    with BrokerThread() as broker:
        outcome = carry_out(
            plan, broker.address, "guest", "guest", 10.0, lambda _amount: getattr(broker, end)()
        )
    assert outcome.why
    assert not outcome.whole
    assert dict(outcome.new) == {"queues": BATCH}


def test_an_empty_plan_is_no_work(live: Live) -> None:
    assert run(live, plan_of(file_of(queues=[]), NOTHING)).whole
    assert names(ImportPlan()) == []
