"""Queues with `x-dedup-window`, on the wire: an id that comes again is confirmed, and not enqueued again."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.content import write_content
from broker.model.history.records import EnqueueRun, EntryDelete, EntryPut, IdsNoted, QueueIds, Unrouted
from broker.model.queue.removals import MessageFormat
from broker.model.values import FOREVER, Scope
from broker.model.vhost import windows
from broker.model.vhost.directory import POLICY
from tests.broker.amqp091.transacting import bodies, gated, refused
from tests.broker.amqp091.wire import Raw, World, encode_frame
from tests.builds import PURE_ONLY


def declared(world: World, name: str = "q", window: object = "100/1m", **arguments: Any) -> None:
    client = world.open()
    client.call(1, "exchange.declare", exchange="all", type="fanout")
    told = {"x-dedup-window": window} if window is not None else {}
    told |= {key.replace("_", "-"): value for key, value in arguments.items()}
    assert (
        client.call(1, "queue.declare", queue=name, arguments=told, durable=True).name == "queue.declare-ok"
    )
    client.call(1, "queue.bind", queue=name, exchange="all")


def sending(world: World, mode: str = "confirm", **properties: str) -> Raw:
    client = world.open(properties=properties)
    client.call(1, f"{mode}.select")
    return client


def framed(body: bytes, **properties: Any) -> bytes:
    method = encode_frame(1, "basic.publish", exchange="all", routing_key="")
    return method + write_content(properties, body, 131072).raw


def send(client: Raw, *ids: str, **properties: Any) -> list[str]:
    """Messages with these ids, whose bodies are the ids, in one tick. The names of the answers."""
    client.raw(b"".join([framed(name.encode(), message_id=name, **properties) for name in ids]))
    client.world.pass_time(0.01)
    return client.names()


def test_an_id_is_enqueued_once_while_its_window_knows_it() -> None:
    world = World()
    declared(world, window="3/1m")
    client = sending(world)
    assert send(client, "a", "b", "a", "a") == ["basic.ack"]
    assert send(sending(world), "b", "c") == ["basic.ack"]
    assert bodies(world, "q") == [b"a", b"b", b"c"], "also after they are consumed"
    send(client, "a", "d")
    assert bodies(world, "q") == [b"d"]
    send(client, "a", "d")  # d is the third behind it
    assert bodies(world, "q") == [b"a"]
    world.pass_time(61)
    send(client, "d")
    assert bodies(world, "q") == [b"d"]
    assert world.vhost.shared.known_ids == 5


def test_the_header_comes_before_the_property_and_a_message_without_both_is_new() -> None:
    world = World()
    declared(world)
    client = sending(world)
    client.raw(
        framed(b"1", headers={"x-dedup-id": "a"}, message_id="x") + framed(b"2", headers={"x-dedup-id": "a"})
        + framed(b"3", message_id="a") + framed(b"4", headers={"x-dedup-id": b"x"}) + framed(b"5")
        + framed(b"6") + framed(b"7", message_id="") + framed(b"8", message_id="")
        + framed(b"9", headers={"x-dedup-id": None}, message_id="x")
    )  # fmt: skip
    world.pass_time(0.01)
    assert bodies(world, "q") == [b"1", b"4", b"5", b"6", b"7", b"8"]


def test_the_confirm_of_one_that_comes_again_waits_like_a_new_one_and_the_ledger_notes_it() -> None:
    world, gate, batches = gated()
    declared(world)
    world.vhost.history.ledger_wanted = True
    gate.applied = gate.durable = world.vhost.history.position
    first, again = sending(world), sending(world, producer="p")
    assert send(first, "a", delivery_mode=2) == send(again, "a", "b", delivery_mode=2) == []
    gate.applied = gate.durable = FOREVER
    world.pass_time(0.01)
    assert first.names() == again.names() == ["basic.ack"]
    records = [record for batch in batches.taken for record in batch.records]
    noted = [record for record in records if isinstance(record, IdsNoted)]
    assert [(len(r.keys), r.first, r.scope) for r in noted] == [
        (1, n, Scope.STORE | Scope.LINK) for n in (1, 2)
    ]
    (told,) = [record for record in records if isinstance(record, Unrouted)]
    assert (told.first, told.last, told.reason) == (1, 1, "known")
    assert len([record for record in records if isinstance(record, EnqueueRun)]) == 2


def test_a_fan_out_is_completed_and_queues_without_a_window_take_all() -> None:
    world = World()
    declared(world, "a")
    declared(world, "all", None)
    send(sending(world), "1", "2")
    declared(world, "b")
    send(sending(world), "2", "3")
    found = [bodies(world, name) for name in ("a", "b", "all")]
    assert found == [[b"1", b"2", b"3"], [b"2", b"3"], [b"1", b"2", b"2", b"3"]]


def test_what_was_refused_or_rolled_back_is_new() -> None:
    world = World()
    declared(world, x_max_length=1, x_overflow="reject-publish")
    client = sending(world)
    assert send(client, "a", "b", "b", "a") == ["basic.ack", "basic.nack"]
    assert bodies(world, "q") == [b"a"]
    assert send(client, "a", "b") == ["basic.ack"]
    assert bodies(world, "q") == [b"b"]
    tx = sending(world, "tx")
    send(tx, "c")
    tx.call(1, "tx.rollback")
    send(tx, "c")
    assert tx.call(1, "tx.commit").name == "tx.commit-ok"
    assert bodies(world, "q") == [b"c"]


def test_a_dead_letter_that_comes_back_is_taken() -> None:
    world = World()
    declared(world, x_dead_letter_exchange="all")
    send(sending(world), "a")
    client = world.open()
    got = client.call(1, "basic.get", queue="q")
    client.send(1, "basic.reject", delivery_tag=got["delivery_tag"], requeue=False)
    client.read()
    world.pass_time(0.1)
    assert bodies(world, "q") == [b"a"]


def test_a_queue_made_again_starts_afresh() -> None:
    world = World()
    declared(world)
    send(sending(world), "a")
    world.open().call(1, "queue.delete", queue="q")
    declared(world)
    send(sending(world), "a")
    assert bodies(world, "q") == [b"a"]


def test_a_policy_gives_a_window_and_what_it_knows_goes_with_it() -> None:
    world, _, batches = gated()
    declared(world, window=None)
    definition = {
        "pattern": "^q",
        "definition": {"dedup-window": "10/1m"},
        "priority": 0,
        "apply-to": "queues",
    }
    put = EntryPut(POLICY, "/", "p", definition)
    client = sending(world)
    for change, expected in ((put, 1), (EntryDelete(POLICY, "/", "p"), 2), (put, 1)):
        world.vhost.shared.change_directory([change])
        world.pass_time(0.01)
        send(client, "a", "a")
        assert len(bodies(world, "q")) == expected
    records = [record for batch in batches.taken for record in batch.records]
    assert [(r.begin, r.ids) for r in records if isinstance(r, QueueIds)] == [(True, [])]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("x" * 65536, "not of 65536"), ({"a": 1}, "not of type table"), ("", "not of 0"),
        (7, "not of type signedint"), ([1], "not of type array"), (True, "not of type bool"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["confirm", "tx"])
def test_an_id_that_cannot_be_closes_the_channel_behind_what_came_before(
    told: Any, why: str, mode: str
) -> None:
    world = World()
    declared(world)
    client = sending(world, mode)
    bad = framed(b"2", headers={"x-dedup-id": told})
    client.raw(framed(b"1", message_id="a") + bad + framed(b"3", message_id="c"))
    world.pass_time(0.01)
    seen = refused(client, 406, "x-dedup-id is a text of 1 to 1024 octets, " + why)
    assert len(seen["reply_text"]) < 100
    assert bodies(world, "q") == ([b"1"] if mode == "confirm" else [])


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ("10m", "'10m' is not a number of ids from 1 to 100000, alone or with a time"),
        (0, "0 is not a number"), (100_001, "100001 is not"), (True, "{unacceptable_type,bool}"),
        ([], "{unacceptable_type,array}"),
        ("9" * 4000, "is not a number of ids"),
    ],
)  # fmt: skip
def test_a_window_that_cannot_be_is_refused(window: object, why: str) -> None:
    client = World().open()
    client.send(1, "queue.declare", queue="q", arguments={"x-dedup-window": window})
    refused(client, 406, why)


@PURE_ONLY
@pytest.mark.parametrize("share", [1000, 3])
def test_each_id_is_read_once(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small share, the messages are published in turns."""
    read: list[bytes | None] = []
    octets_of = windows._octets_of

    def counted(form: MessageFormat, raw: bytes) -> bytes | None:
        read.append(octets_of(form, raw))
        return read[-1]

    monkeypatch.setattr(windows, "_octets_of", counted)
    world = World(share=share)
    declared(world)
    declared(world, "other")
    client = sending(world)
    send(client, "a", "b", "a", "c")
    world.pass_time(1)
    assert read == [b"a", b"b", b"a", b"c"]
    assert bodies(world, "q") == bodies(world, "other") == [b"a", b"b", b"c"]
