"""Clients of AMQP 1.0 that want all of the broker for themselves. Work is counted, not timed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest

pytest.importorskip("proton")

from broker.amqp10 import links, outgoing
from broker.amqp10.connection import Amqp10Connection
from broker.engine import SEND
from broker.model.history.records import Entry
from broker.model.queue.queue import Queue
from broker.model.values import Position
from tests.bad_inputs.test_amqp10 import BEGIN, LOGIN, TRUE, ZERO, attach, frame, opened, transfer, ulong
from tests.broker.amqp091.wire import ManualGate, Raw, World, message
from tests.broker.amqp10.wire import Octets, world10
from tests.builds import PURE_ONLY
from understudy.shared.amqp10.framing import AMQP_HEADER, SASL_HEADER

ATTACHED, ENDED, DISPOSED = b"\0\x53\x12", b"\0\x53\x17", b"\0\x53\x15"
MOST = 2**31 - 1
NULL = b"\x40"


def performative(code: int, *fields: bytes, channel: int = 0) -> bytes:
    return frame(ulong(code, struct.pack(">I", len(fields)) + b"".join(fields)), channel=channel)


def uint(number: int) -> bytes:
    return b"\x70" + struct.pack(">I", number)


def _string(text: str) -> bytes:
    return b"\xa1" + bytes((len(text),)) + text.encode()


def flow(credit: int, *, handle: int = 0) -> bytes:
    """Of a link that has had nothing yet, in a window that never shuts."""
    return performative(0x13, ZERO, uint(MOST), ZERO, uint(2048), uint(handle), ZERO, uint(credit))


def accepted(first: int, last: int, *, settled: bool = True) -> bytes:
    return performative(0x15, TRUE, uint(first), uint(last), TRUE if settled else b"\x42", b"\0\x53\x24\x45")


def detach(handle: int = 0) -> bytes:
    return performative(0x16, uint(handle), TRUE)


@pytest.fixture
def world() -> World:
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    return world


def filled(world: World, messages: int) -> Raw:
    client = world.open()
    for _ in range(messages):
        client.publish(1, b"x", routing_key="q")
    return client


def ticks(world: World, after: Callable[[], None] = lambda: None) -> int:
    """Ticks until nothing is left to do."""
    count = 0
    while (due := world.broker.next_deadline()) is not None and due <= world.now:
        world.broker.end_tick(world.now, int(world.now * 1000))
        for connection in world.broker.take_dirty():
            for client in world.clients:
                if client.connection is connection:
                    client.inbox += b"".join(connection.take_output())
                    connection.written(0)
        after()
        count += 1
    return count


def consumer(world: World, credit: int = MOST) -> Octets:
    client = opened(world, BEGIN, attach(receiver=True))
    client.raw(flow(credit))
    return client


# -- the share of one connection


@pytest.mark.parametrize(
    ("before", "data", "kind"),
    [
        ((BEGIN,), [attach(name=f"l{n}") + detach() for n in range(1000)], b"\0\x53\x12"),
        ((BEGIN,), [attach(name=f"l{n}", receiver=True) + detach() for n in range(1000)], b"\0\x53\x12"),
        ((BEGIN,), [attach(uint(n), name=f"l{n}") for n in range(1000)], b"\0\x53\x12"),
        ((), [BEGIN + frame(ulong(0x17, struct.pack(">I", 0)))] * 1000, b"\0\x53\x11"),
    ],
    ids=["attach and detach, sending", "attach and detach, receiving", "attach", "begin and end"],
)  # fmt: skip
def test_whoever_says_much_at_once_is_served_in_turns(
    world: World, before: tuple[bytes, ...], data: list[bytes], kind: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    client = opened(world, *before)
    answers: list[int] = []
    client.connection.receive(b"".join(data), world.now)
    answers.append(b"".join(client.connection.take_output()).count(kind))
    ticks(world, lambda: answers.append(client.take().count(kind)))
    assert sum(answers) == 1000
    assert max(answers) < 150
    assert client.connection.running
    assert capfd.readouterr().err == ""


def test_messages_of_one_input_are_published_in_turns(world: World) -> None:
    client = opened(world, BEGIN, attach())
    queue = world.vhost.queues["q"]
    depths = [0]
    messages = [transfer(b"\0Su\xa0\1x", delivery=n, tag=b"%d" % n) for n in range(500)]
    client.connection.receive(b"".join(messages), world.now)
    depths.append(queue.message_count)
    ticks(world, lambda: depths.append(queue.message_count))
    assert depths[-1] == 500
    assert max(after - before for before, after in pairwise(depths)) <= 200


def test_messages_to_very_many_queues_are_published_in_turns() -> None:
    world, queues = world10(share=1000), 300
    owner = world.open()
    for number in range(queues):
        owner.call(1, "queue.declare", queue=f"q{number}")
        owner.call(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout", routing_key="")
    client = opened(world, BEGIN, attach(address="/exchanges/amq.fanout"))
    made = list(world.vhost.queues.values())
    depths = [0]
    messages = [transfer(b"\0Su\xa0\1x", delivery=n, tag=b"%d" % n) for n in range(20)]
    client.connection.receive(b"".join(messages), world.now)
    ticks(world, lambda: depths.append(sum(queue.message_count for queue in made)))
    assert depths[-1] == 20 * queues
    assert max(after - before for before, after in pairwise(depths)) <= 2 * 1000


def test_others_are_served_between_two_turns(world: World) -> None:
    greedy, other = opened(world, BEGIN), world.open()
    greedy.connection.receive(b"".join(attach(name=f"l{n}") + detach() for n in range(1000)), world.now)
    other.connection.receive(message(1, b"x", "", "q"), world.now)
    world.broker.end_tick(world.now, 0)
    assert world.vhost.queues["q"].message_count == 1
    assert greedy.connection.unserved
    assert world.broker.next_deadline() == world.now


def test_what_came_before_the_end_of_input_is_served_first(world: World) -> None:
    client = opened(world, BEGIN, attach())
    messages = [transfer(b"\0Su\xa0\1x", delivery=n, tag=b"%d" % n) for n in range(500)]
    client.connection.receive(b"".join(messages), world.now)
    client.connection.eof(world.now)
    assert not client.closed
    ticks(world)
    assert client.closed
    assert world.vhost.queues["q"].message_count == 500


def test_what_waits_is_forgotten_with_its_socket(world: World) -> None:
    client = opened(world, BEGIN, attach())
    client.connection.receive(b"".join(detach() + attach() for _ in range(500)), world.now)
    client.connection.lost(world.now)
    ticks(world)
    assert not world.broker.resuming and client.connection not in world.broker.connections


# -- deliveries that are not settled


def test_unsettled_deliveries_of_a_link_are_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "UNSETTLED_MAX", 50)
    filled(world, 200)
    client = consumer(world)
    queue = world.vhost.queues["q"]
    assert (queue.message_count, queue.unacked_count) == (150, 50)
    client.raw(accepted(0, 9))
    assert (queue.message_count, queue.unacked_count) == (140, 50)
    client.raw(accepted(10, 49, settled=False))  # the broker settles
    assert (queue.message_count, queue.unacked_count) == (100, 50)
    for first in (50, 100, 150):
        client.raw(accepted(first, first + 49))
    assert (queue.message_count, queue.unacked_count) == (0, 0)
    assert client.connection.links.unsettled == 0  # type: ignore[attr-defined]


def test_unsettled_deliveries_of_a_connection_are_limited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "UNSETTLED_MAX", 50)
    filled(world, 200)
    client = consumer(world, 40)
    client.raw(attach(uint(1), name="second", receiver=True) + flow(MOST, handle=1))
    queue = world.vhost.queues["q"]
    assert (queue.message_count, queue.unacked_count) == (150, 50)
    client.raw(accepted(0, 19))
    assert (queue.message_count, queue.unacked_count) == (130, 50)
    client.raw(detach(1))
    assert (queue.message_count, queue.unacked_count) == (160, 20)
    assert client.connection.links.unsettled == 20  # type: ignore[attr-defined]
    client.raw(attach(uint(1), name="third", receiver=True) + flow(MOST, handle=1))
    assert queue.unacked_count == 50


def test_links_that_are_served_at_once_share_the_limit_of_their_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "UNSETTLED_MAX", 50)
    filled(world, 500)
    client = opened(world, BEGIN, *(attach(uint(n), name=f"l{n}", receiver=True) for n in range(10)))
    client.raw(b"".join(flow(MOST, handle=n) for n in range(10)))
    assert client.take().count(b"\0\x53\x14") == 50
    for first in range(0, 450, 50):
        client.raw(accepted(first, first + 49))
        assert client.take().count(b"\0\x53\x14") == 50
    client.raw(accepted(450, 499))
    assert world.vhost.queues["q"].message_count == world.vhost.queues["q"].unacked_count == 0


def test_outcomes_that_wait_for_gates_count_as_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "UNSETTLED_MAX", 50)
    world = world10()
    publisher = world.open()
    publisher.call(1, "queue.declare", queue="q", durable=True)
    for _ in range(200):
        publisher.publish(1, b"x", routing_key="q", properties=b"\x10\x00\x02")
    world.broker.gates.append(gate := ManualGate())
    client = consumer(world)
    queue = world.vhost.queues["q"]
    client.raw(accepted(0, 49, settled=False))
    client.raw(accepted(0, 49, settled=False))
    assert (queue.message_count, queue.unacked_count) == (150, 0)
    gate.applied = gate.durable = Position(9, 0)
    world.broker.release()
    world.tick()
    assert (queue.message_count, queue.unacked_count) == (100, 50)


def test_a_drain_ends_where_no_more_may_be_unsettled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "UNSETTLED_MAX", 50)
    filled(world, 200)
    client = opened(world, BEGIN, attach(receiver=True))
    client.raw(performative(0x13, ZERO, uint(MOST), ZERO, uint(2048), ZERO, ZERO, uint(100), ZERO, TRUE))
    assert b"\0\x53\x13" in client.take()
    client.raw(accepted(0, 49))
    assert world.vhost.queues["q"].message_count == 150


@pytest.mark.parametrize("end", ["socket", "session"])
def test_what_many_links_held_goes_back_at_once(
    world: World, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world, 1000)
    client = opened(world, BEGIN, *(attach(uint(n), name=f"l{n}", receiver=True) for n in range(100)))
    client.raw(b"".join(flow(10, handle=n) for n in range(100)))
    queue = world.vhost.queues["q"]
    assert queue.unacked_count == 1000
    returned: list[int] = []
    requeue = Queue.requeue

    def counted(queue: Queue, entries: list[Entry], *, failed: bool = True) -> None:
        returned.append(len(entries))
        requeue(queue, entries, failed=failed)

    monkeypatch.setattr(Queue, "requeue", counted)
    if end == "socket":
        client.connection.lost(world.now)
    else:
        client.raw(performative(0x17))
    assert [count for count in returned if count] == [1000]
    assert (queue.message_count, queue.unacked_count) == (1000, 0)
    assert [sequence for sequence, _, _ in queue.ready] == sorted(sequence for sequence, _, _ in queue.ready)


def test_one_disposition_of_all_is_served_in_turns(world: World) -> None:
    filled(world, 3000)
    client = consumer(world)
    queue = world.vhost.queues["q"]
    assert queue.unacked_count == 3000
    left = [3000]
    client.connection.receive(accepted(0, 2999), world.now)
    left.append(queue.unacked_count)
    ticks(world, lambda: left.append(queue.unacked_count))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 200


def test_unsettled_deliveries_count_as_memory(world: World) -> None:
    filled(world, 100)
    before = consumer(world, 1).connection.octets
    client = consumer(world, 99)
    assert client.connection.octets == before + 98 * 1500
    assert isinstance(client.connection, Amqp10Connection)


# -- deliveries


@pytest.mark.parametrize("many", [1, 10, 500])
def test_a_connection_with_many_links_receives_in_turns(world: World, many: int) -> None:
    filled(world, 2000)
    client = opened(world, BEGIN, *(attach(uint(n), name=f"l{n}", receiver=True) for n in range(many)))
    sent: list[int] = []
    client.connection.receive(b"".join(flow(3000, handle=n) for n in range(many)), world.now)
    ticks(world, lambda: sent.append(client.take().count(b"\0\x53\x14")))
    assert sum(sent) == 2000
    assert max(sent) <= outgoing.BURST


def test_connections_share_what_one_tick_sends(world: World) -> None:
    publisher = world.open()
    names = [f"q{n}" for n in range(4)]
    for name in names:
        publisher.call(1, "queue.declare", queue=name)
        for _ in range(300):
            publisher.publish(1, b"x", routing_key=name)
    clients = [opened(world, BEGIN, attach(uint(0), address=name, receiver=True)) for name in names]
    for client in clients:
        client.take()
        client.connection.receive(flow(300, handle=0), world.now)
    sent: list[list[int]] = []
    ticks(world, lambda: sent.append([client.take().count(b"\0\x53\x14") for client in clients]))
    assert [sum(of) for of in zip(*sent, strict=True)] == [300] * 4
    assert max(map(sum, sent)) <= world.broker.settings.share // SEND
    had = [sum(of) for of in zip(*sent[: len(sent) // 2], strict=True)]
    assert min(had) > 0, "nobody waits for the end of another's"


def test_little_waits_to_be_sent_however_many_links_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be all that goes back to the queue when the connection is lost."""
    monkeypatch.setattr(links, "UNSETTLED_MAX", 50)
    filled(world, 8000)
    client = opened(world, BEGIN, *(attach(uint(n), name=f"l{n}", receiver=True) for n in range(100)))
    client.raw(b"".join(flow(MOST, handle=n) for n in range(100)))
    assert world.vhost.queues["q"].unacked_count <= 50 + 16 * outgoing.BURST


def test_no_link_of_a_connection_keeps_others_from_their_turns(world: World) -> None:
    publisher = filled(world, 4000)
    publisher.call(1, "queue.declare", queue="few")
    publisher.publish(1, b"few", routing_key="few")
    source = b"\0\x53\x28\xc0\x06\x01\xa1\x03few"
    few = performative(0x12, _string("few"), uint(1), TRUE, NULL, NULL, source)
    client = opened(world, BEGIN, attach(receiver=True), few)
    sent: list[bytes] = []
    client.connection.receive(flow(5000) + flow(1, handle=1), world.now)
    ticks(world, lambda: sent.append(client.take()))
    assert any(b"few" in each for each in sent[:4])
    assert sum(each.count(b"\0\x53\x14") for each in sent) == 4001


# -- fields of wrong types


NOWHERE = b"\0\x53\x29\xc0\x0a\x01\xa1\x07/nosuch"
VALUES = {
    "boolean": TRUE,
    "number": b"\x52\x07",
    "negative": b"\x54\xff",
    "string": _string("s"),
    "symbol": b"\xa3\x01s",
    "binary": b"\xa0\x02\xff\xfe",
    "list": b"\x45",
    "map with a binary key": b"\xc1\x07\x02\xa0\x02\xff\xfe\x52\x01",
    "map with a number as key": b"\xc1\x05\x02\x52\x01\x52\x01",
    "map with null as key": b"\xc1\x04\x02\x40\x52\x01",
    "map with a list as key": b"\xc1\x04\x02\x45\x52\x01",
    "array of numbers": b"\xe0\x03\x01\x54\x05",
    "float": b"\x72\0\0\0\0",
    "described": b"\0\x53\x05\x45",
    "described by a list": b"\0\x45\x45",
    "a source with a number as address": b"\0\x53\x28\xc0\x03\x01\x52\x07",
}
SENDER = attach()
ATTACH = [_string("l"), ZERO, b"\x42", *[NULL] * 3, NOWHERE, NULL, NULL, ZERO, *[NULL] * 4]
FIELDS = {
    "open": (0x10, [_string("c"), *[NULL] * 9], None),
    "begin": (0x11, [NULL, ZERO, uint(9), uint(9), *[NULL] * 4], ()),
    "attach": (0x12, ATTACH, (BEGIN,)),
    "flow": (0x13, [ZERO, uint(9), ZERO, uint(9), ZERO, ZERO, uint(5), *[NULL] * 4], (BEGIN, SENDER)),
    "transfer": (0x14, [ZERO, ZERO, b"\xa0\x01t", ZERO, b"\x42", b"\x42", *[NULL] * 5], (BEGIN, SENDER)),
    "disposition": (0x15, [TRUE, ZERO, ZERO, TRUE, b"\0\x53\x24\x45", NULL], (BEGIN, attach(receiver=True))),
    "detach": (0x16, [ZERO, TRUE, NULL], (BEGIN, SENDER)),
    "end": (0x17, [NULL], (BEGIN,)),
    "close": (0x18, [NULL], (BEGIN,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_wrong_types_cost_a_line_each(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, fields, before = FIELDS[name]
    for place in range(len(fields)):
        for what, value in VALUES.items():
            world = world10()
            world.open().call(1, "queue.declare", queue="q")
            if before is None:
                client = Octets(world)
                for each in (SASL_HEADER, LOGIN, AMQP_HEADER):
                    client.raw(each)
            else:
                client = opened(world, *before)
            world.logged.clear()
            client.raw(performative(code, *fields[:place], value, *fields[place + 1 :]))
            lines = [line for line in world.logged if "open: user" not in line]
            case = f"field {place} of {name}: {what}: {lines}"
            assert len(lines) <= 1, case
            if before is None and "closed with" in str(lines):
                assert b"\0\x53\x18" in client.take(), f"{case}: no close"
            assert not any("unexpected" in line or "\n" in line or "internal" in line for line in lines), case
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        (0x12, [uint(7), ZERO, b"\x42"], b"attach whose name is not a string"),
        (0x12, [NULL, ZERO, b"\x42"], b"attach without its name"),
        (0x12, [_string("l"), ZERO], b"attach without its role"),
        (0x12, [_string("l"), ZERO, TRUE, NULL, NULL, ZERO], b"attach whose source is not a described list"),
        (0x16, [TRUE], b"detach whose handle is not a number"),
        (0x18, [b"\x45"], b"close whose error is not an error"),
    ],
)
def test_a_client_is_told_which_field_is_wrong(
    world: World, code: int, fields: list[bytes], text: bytes
) -> None:
    client = opened(world, BEGIN)
    client.raw(performative(code, *fields))
    said = client.take()
    assert b"amqp:decode-error" in said and text in said
    assert [text.decode() in line for line in world.logged] == [True]


def test_the_engine_says_nothing_by_itself(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    client = Octets(world)
    for each in (SASL_HEADER, LOGIN, AMQP_HEADER):
        client.raw(each)
    client.raw(performative(0x10, _string("c"), NULL, uint(7)))  # it warns of so small a frame
    opened(world, BEGIN).raw(performative(0x13, ZERO, uint(9), ZERO, uint(9), uint(500), ZERO, uint(5)))
    assert capfd.readouterr().err == ""


def test_links_that_are_refused_by_the_thousand_are_counted(world: World) -> None:
    client = opened(world, BEGIN)
    refused = [
        performative(0x12, _string(f"l{n}"), ZERO, b"\x42", *[NULL] * 3, NOWHERE, NULL, NULL, ZERO) + detach()
        for n in range(1000)
    ]
    client.raw(b"".join(refused))
    assert len(world.logged) == 1 and "link 'l0' refused with amqp:invalid-field" in world.logged[0]
    world.pass_time(1.1)
    assert (
        len(world.logged) == 2 and "link 'l999'" in world.logged[1] and "(999 of the kind" in world.logged[1]
    )


@PURE_ONLY
def test_a_fault_of_ours_is_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr(links, "incoming", broken)
    for _ in range(3):
        client = opened(world, BEGIN)
        client.raw(attach())
        assert b"amqp:internal-error" in client.take()
    told = [line for line in world.logged if "unexpected" in line]
    assert len(told) == 1 and "KeyError" in told[0] and "test_amqp10.py:" in told[0] and "\n" not in told[0]
