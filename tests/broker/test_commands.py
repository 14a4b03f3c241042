"""The command table says what a broker does: each row is run, over a gate that is shut (invariants 6, 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from proton import Delivery, Message, symbol

from broker.amqp091.codec.grammar import METHODS
from broker.amqp10.connection import PROTOCOLS
from broker.commands import AMQP_0_9_1, AMQP_1_0, OTHERS, Answer, Row
from broker.model.history.records import Record
from tests.broker.amqp091.test_copies import with_headers
from tests.broker.amqp091.transacting import Batches
from tests.broker.amqp091.wire import ManualGate, World, message
from tests.broker.amqp10.wire import Talker
from tests.broker.model.helpers import Everything

ROWS = [row for rows in AMQP_0_9_1.values() for row in rows]
BY_NAME = {f"{name} {row.when}".strip(): row for row in [*ROWS, *AMQP_1_0, *OTHERS] for name in row.commands}
PERFORMATIVES = ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"]
KINDS = {kind.__name__ for kind in get_args(Record)}
REPLIES = "amq.rabbitmq.reply-to"
Seen = tuple[set[str], bool, bool]
"""Kinds of records, whether there was an answer while the gate was shut, and whether there was one at all."""


class Rig:
    """A broker with one queue of each kind that a probe needs, and one client of 0-9-1."""

    def __init__(self) -> None:
        self.world = World(Everything())
        self.world.broker.protocols.update(PROTOCOLS)
        self.world.vhost.history.ledger_wanted = True
        self.batches, self.gate = Batches(), ManualGate()
        self.world.broker.sinks.append(self.batches)
        self.client = self.world.open(properties={"producer": "p"})
        self.call("exchange.declare", exchange="e", type="fanout")
        self.call("exchange.declare", exchange="f", type="fanout")
        self.call("queue.declare", queue="dead")
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        self.call("queue.declare", queue="q", durable=True, arguments=arguments)
        self.call("queue.bind", queue="q", exchange="e")
        self.call("exchange.bind", destination="f", source="e")
        self.call("queue.declare", queue="auto", auto_delete=True)
        for body in (b"1", b"2"):
            self.client.publish(1, body, routing_key="q")

    def call(self, name: str, **arguments: Any) -> None:
        self.client.call(1, name, **arguments)

    def get(self) -> None:
        self.call("basic.get", queue="q")

    def shut(self) -> None:
        """From now on nothing passes; what was before is forgotten."""
        self.world.pass_time(1)
        self.client.read()
        self.batches.taken.clear()
        self.gate.applied = self.gate.durable = self.world.vhost.history.position
        self.world.broker.gates[:] = [self.gate]

    def kinds(self) -> set[str]:
        self.world.pass_time(0.1)
        return {type(record).__name__ for batch in self.batches.taken for record in batch.records}

    def pass_all(self) -> None:
        self.gate.applied = self.gate.durable = self.world.vhost.history.position
        self.world.tick()


def _sends(name: str, *, channel: int = 1, **arguments: Any) -> Callable[[Rig], None]:
    return lambda rig: rig.client.send(channel, name, **arguments)


def _publishes(key: str) -> Callable[[Rig], None]:
    return lambda rig: rig.client.raw(message(1, b"x", "", key))


def _fans_out(rig: Rig) -> None:
    rig.client.raw(message(1, b"x", "e", ""))


def _nothing(_: Rig) -> None: ...


def _confirms(rig: Rig) -> None:
    rig.call("confirm.select")


def _numbered(rig: Rig) -> None:
    """A producer is gone, for which there is no room beside another one."""
    rig.world.vhost.shared.producers.most = 1
    gone = rig.world.open(properties={"producer_id": "gone"})
    gone.call(1, "confirm.select")
    gone.connection.lost(rig.world.now)
    rig.client = rig.world.open(properties={"producer_id": "n"})


def _resends(rig: Rig) -> None:
    """It has published to one of the two queues."""
    told = {"producer_id": "n", "producer": "p"}
    rig.client = rig.world.open(properties=told)
    rig.call("confirm.select")
    rig.client.publish(1, b"x", routing_key="q")
    rig.client = rig.world.open(properties=told)
    rig.call("queue.bind", queue="auto", exchange="e")
    rig.call("confirm.select")


def _sends_id(rig: Rig) -> None:
    told = {"x-dedup-window": 9}
    rig.client = rig.world.open(properties={"producer": "p"})
    rig.call("queue.declare", queue="window", arguments=told)
    rig.call("confirm.select")
    rig.client.publish(1, b"x", routing_key="window", properties=with_headers(**{"x-dedup-id": "a"}))


def _sends_ids(rig: Rig) -> None:
    for name in "ab":
        rig.client.publish(1, b"x", routing_key="window", properties=with_headers(**{"x-dedup-id": name}))


def _got(rig: Rig) -> None:
    rig.get()


def _in_transaction(rig: Rig) -> None:
    rig.get()
    rig.call("tx.select")
    for key in ("q", "nowhere"):
        rig.client.publish(1, b"x", routing_key=key)
    rig.client.send(1, "basic.ack", delivery_tag=1)


def _resends_in_transaction(rig: Rig) -> None:
    """One of the two queues had it."""
    _resends(rig)
    told = {"producer_id": "n", "producer": "p"}
    rig.client = rig.world.open(properties=told)
    rig.call("tx.select")
    rig.client.publish(1, b"x", exchange="e")


def _ids_in_transaction(rig: Rig) -> None:
    _sends_id(rig)
    rig.client = rig.world.open(properties={"producer": "p"})
    rig.call("tx.select")
    _sends_ids(rig)


def _consumes(rig: Rig) -> None:
    rig.call("basic.consume", queue="auto", consumer_tag="c")
    rig.client.publish(1, b"x", routing_key="auto")


def _exclusive(rig: Rig) -> None:
    rig.call("queue.declare", queue="mine", exclusive=True)
    rig.client.publish(1, b"x", routing_key="mine")


def _no_ack(rig: Rig) -> None:
    rig.call("queue.purge", queue="q")
    rig.client.send(1, "basic.consume", queue="q", no_ack=True)
    rig.client.publish(1, b"0", routing_key="q")
    rig.client.send(1, "channel.flow", active=False)
    rig.client.publish(1, b"x", routing_key="q")


def _queue(**arguments: Any) -> Callable[[Rig], None]:
    """With these arguments, a dead-letter queue and one message."""

    def before(rig: Rig) -> None:
        wanted = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        wanted |= {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        rig.call("queue.declare", queue="ruled", arguments=wanted)
        _publishes_value(rig)

    return before


def _publishes_value(rig: Rig) -> None:
    rig.client.publish(1, b"x", routing_key="ruled", properties=with_headers(key="k"))


def _delayed(rig: Rig) -> None:
    rig.call(
        "exchange.declare", exchange="d", type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
    )
    rig.call("queue.bind", queue="q", exchange="d")
    rig.client.publish(1, b"x", exchange="d", properties=with_headers(**{"x-delay": 1500}))


def _waits(rig: Rig) -> None:
    rig.world.pass_time(1)


PROBES: list[tuple[str, Callable[[Rig], None], Callable[[Rig], None]]] = [
    ("connection.close", _exclusive, _sends("connection.close", channel=0, reply_code=200)),
    ("channel.open", _nothing, _sends("channel.open", channel=2)),
    ("channel.close", _consumes, _sends("channel.close", reply_code=200)),
    ("exchange.declare", _nothing, _sends("exchange.declare", exchange="n", type="topic")),
    ("exchange.delete", _nothing, _sends("exchange.delete", exchange="f")),
    ("exchange.bind", _nothing, _sends("exchange.bind", destination="e", source="f")),
    ("queue.bind", _nothing, _sends("queue.bind", queue="q", exchange="f")),
    ("exchange.unbind", _nothing, _sends("exchange.unbind", destination="f", source="e")),
    ("queue.unbind", _nothing, _sends("queue.unbind", queue="q", exchange="e")),
    ("queue.declare", _nothing, _sends("queue.declare", queue="n")),
    ("queue.purge", _nothing, _sends("queue.purge", queue="q")),
    ("queue.delete", _nothing, _sends("queue.delete", queue="q")),
    ("basic.publish", _confirms, _publishes("q")),
    ("basic.publish to no queue", _confirms, _publishes("nowhere")),
    ("basic.publish again, with its old number", _resends, _fans_out),
    ("basic.publish to a queue with x-dedup-window", _sends_id, _sends_ids),
    ("confirm.select", _nothing, _sends("confirm.select")),
    ("confirm.select with a producer_id", _numbered, _sends("confirm.select")),
    ("basic.qos", _nothing, _sends("basic.qos", prefetch_count=3)),
    ("basic.consume", _nothing, _sends("basic.consume", queue="auto")),
    ("basic.consume direct reply-to", _nothing, _sends("basic.consume", queue=REPLIES, no_ack=True)),
    ("basic.consume browsing", _nothing, _sends("basic.consume", queue="q", arguments={"x-browse": True})),
    ("basic.cancel", _consumes, _sends("basic.cancel", consumer_tag="c")),
    ("basic.deliver", _no_ack, _sends("channel.flow", active=True)),
    ("basic.get", _nothing, _sends("basic.get", queue="q", no_ack=True)),
    ("basic.ack", _got, _sends("basic.ack", delivery_tag=1)),
    ("basic.nack", _got, _sends("basic.nack", delivery_tag=1)),
    ("basic.reject", _got, _sends("basic.reject", delivery_tag=1)),
    ("basic.recover", _got, _sends("basic.recover", requeue=True)),
    ("basic.recover-async", _got, _sends("basic.recover-async", requeue=True)),
    ("tx.select", _nothing, _sends("tx.select")),
    ("tx.select with a producer_id", _numbered, _sends("tx.select")),
    ("tx.commit", _in_transaction, _sends("tx.commit")),
    ("tx.commit of old numbers", _resends_in_transaction, _sends("tx.commit")),
    ("tx.commit to a queue with x-dedup-window", _ids_in_transaction, _sends("tx.commit")),
    ("tx.rollback", _in_transaction, _sends("tx.rollback")),
    ("message-expires", _queue(message_ttl=1500), _waits),
    ("length-limit", _queue(max_length=1), _publishes_value),
    ("last-value", _queue(last_value_key="key"), _publishes_value),
    ("queue-expires", _queue(expires=1500), _waits),
    ("delayed-message-comes-due", _delayed, _waits),
]


def seen(before: Callable[[Rig], None], probe: Callable[[Rig], None]) -> Seen:
    rig = Rig()
    before(rig)
    rig.shut()
    probe(rig)
    early = bool(rig.client.read())
    kinds = rig.kinds()
    rig.pass_all()
    return kinds, early, early or bool(rig.client.read())


class Rig10(Rig):
    """The same with a client of AMQP 1.0."""

    def __init__(self) -> None:
        super().__init__()
        self.talker = Talker(self.world, properties={symbol("producer"): "p10"})

    def shut(self) -> None:
        self.talker.turn()
        super().shut()
        self.talker.events.clear()


def _sender(rig: Rig10) -> Any:
    return rig.talker.sender("q")


def _receiver(rig: Rig10) -> Any:
    return rig.talker.received(rig.talker.receiver("q", 1))[0][0]


def _dynamic(rig: Rig10) -> Any:
    link = rig.talker.receiver(None)
    rig.client.publish(1, b"x", routing_key=str(link.remote_source.address).rpartition("/")[2])
    return link


def _none(_: Rig10) -> Any:
    return None


def _closes(rig: Rig10, link: Any) -> None:
    link.close()
    rig.talker.turn()


def _ends(rig: Rig10, _: Any) -> None:
    rig.talker.session.close()
    rig.talker.turn()


def _leaves(rig: Rig10, _: Any) -> None:
    rig.talker.engine.close()
    rig.talker.turn()


def _begins(rig: Rig10, _: Any) -> None:
    rig.talker.engine.session().open()
    rig.talker.turn()


def _sends10(rig: Rig10, link: Any) -> None:
    rig.talker.send(link, Message(body=b"x", durable=True))


def _flows(rig: Rig10, link: Any) -> None:
    link.drain(1)
    rig.talker.turn()


def _attaches_numbered(rig: Rig10, _: Any) -> None:
    rig.talker.sender("q", properties={symbol("producer_id"): "n"})


def _resends10(rig: Rig10) -> Any:
    _resends(rig)
    rig.client.connection.lost(rig.world.now)
    told = {symbol("producer_id"): "n", symbol("producer_next"): 1}
    link = rig.talker.sender("/exchanges/e", properties=told)
    rig.world.pass_time(0.1)
    rig.talker.turn()
    return link


def _window10(rig: Rig10) -> Any:
    _sends_id(rig)
    return rig.talker.sender("window")


def _sends_ids10(rig: Rig10, link: Any) -> None:
    ids = [Message(body=b"x", durable=True, properties={"x-dedup-id": name}) for name in "ab"]
    rig.talker.send(link, *ids)


def _empty(rig: Rig10) -> Any:
    return rig.talker.receiver("dead")


PROBES_1_0: list[tuple[str, Callable[[Rig10], Any], Callable[[Rig10, Any], object]]] = [
    ("begin", _none, _begins),
    ("attach", _none, lambda rig, _: rig.talker.receiver("auto")),
    ("attach a dynamic source", _none, lambda rig, _: rig.talker.receiver(None)),
    ("flow", _empty, _flows),
    ("attach with a producer_id", _numbered, _attaches_numbered),
    ("transfer", _sender, _sends10),
    ("transfer again, with its old number", _resends10, _sends10),
    ("transfer to a queue with x-dedup-window", _window10, _sends_ids10),
    ("disposition", _receiver, lambda rig, it: rig.talker.settle(it, Delivery.ACCEPTED)),
    ("disposition", _receiver, lambda rig, it: rig.talker.settle(it, Delivery.REJECTED)),
    ("detach", _dynamic, _closes),
    ("end", _dynamic, _ends),
    ("close", _dynamic, _leaves),
]


def seen10(name: str, before: Callable[[Rig10], Any], probe: Callable[[Rig10, Any], object]) -> Seen:
    rig = Rig10()
    link = before(rig)
    rig.shut()
    probe(rig, link)
    early = _answered(rig, name)
    kinds = rig.kinds()
    rig.pass_all()
    rig.talker.turn()
    return kinds, early, early or _answered(rig, name)


def _answered(rig: Rig10, name: str) -> bool:
    kind = name.split()[0]
    answer = {"flow": "LINK_FLOW", "transfer": "DELIVERY", "disposition": "DELIVERY"}.get(kind, "_REMOTE_")
    return any(answer in event for event, _ in rig.talker.events)


def run() -> Iterator[tuple[str, Seen]]:
    for name, before, probe in PROBES:
        yield name, seen(before, probe)
    for name, before10, probe10 in PROBES_1_0:
        yield name, seen10(name, before10, probe10)


def lies(rows: Mapping[str, Row], found: list[tuple[str, Seen]]) -> list[str]:
    """Names of rows that say something else than what was seen."""
    wrong, kinds = [], {name: set[str]() for name, _ in found}
    for name, (recorded, early, ever) in found:
        kinds[name] |= recorded
        if (early, ever) != ANSWERED[rows[name].answer]:
            wrong.append(name)
    return wrong + [name for name, recorded in kinds.items() if recorded != set(rows[name].records)]


ANSWERED = {Answer.AFTER_BATCH: (False, True), Answer.AT_ONCE: (True, True), Answer.NONE: (False, False)}


@pytest.fixture(scope="module")
def found() -> list[tuple[str, Seen]]:
    return list(run())


def test_each_row_is_true(found: list[tuple[str, Seen]]) -> None:
    assert lies(BY_NAME, found) == []


def test_a_row_that_lies_is_found(found: list[tuple[str, Seen]]) -> None:
    """With another answer, a record too many, or one too few."""
    for name, _ in found:
        row = BY_NAME[name]
        others = [row._replace(answer=answer) for answer in Answer if answer is not row.answer]
        others.append(row._replace(records=(*row.records, "Nothing")))
        others += [row._replace(records=row.records[1:])] if row.records else []
        assert all(name in lies({**BY_NAME, name: other}, found) for other in others), name


def test_an_answer_before_its_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that asks no gate is seen by each row whose answer waits."""
    monkeypatch.setattr(Rig, "shut", _shut_nothing)
    late = {name for name, _ in run() if BY_NAME[name].answer is Answer.AFTER_BATCH}
    assert late <= set(lies(BY_NAME, list(run())))


def _shut_nothing(rig: Rig) -> None:
    rig.world.pass_time(1)
    rig.client.read()
    rig.batches.taken.clear()


def test_each_command_and_each_record_has_a_row() -> None:
    assert {name for row in ROWS for name in row.commands} == {method.name for method in METHODS}
    assert {name for row in AMQP_1_0 for name in row.commands} == set(PERFORMATIVES)
    rows = [*ROWS, *AMQP_1_0, *OTHERS]
    assert {kind for row in rows for kind in row.records} == KINDS
    probed = {name for name, *_ in [*PROBES, *PROBES_1_0]}
    commands = {name for row in OTHERS for name in row.commands}
    assert {name for name, row in BY_NAME.items() if row.records} - commands <= probed


@pytest.mark.parametrize("test", sorted({row.test for row in [*ROWS, *AMQP_1_0, *OTHERS]}))
def test_each_row_names_a_test(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}(" in (Path(__file__).parents[1] / path).read_text()
