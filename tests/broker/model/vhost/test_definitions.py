"""Declares, deletes and binds: replies, errors, and the resulting history."""

from __future__ import annotations

import pytest

from broker.errors import (
    AccessRefused,
    CommandInvalid,
    InternalError,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.records import ExchangeDelete, QueueDelete
from broker.model.queue.consumer import Consumer
from broker.model.values import Need, Scope
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from tests.broker.model.helpers import OWNER, Recorder, Sink, end_tick, publish, serving, uuids

OTHER = object()


@pytest.fixture
def vhost() -> VirtualHost:
    return serving()


def test_declare_queue_twice_and_passively(vhost: VirtualHost) -> None:
    made = vhost.declare_queue("q", owner=OWNER, durable=True, arguments={"x-a": 1})
    assert vhost.declare_queue("q", owner=OTHER, durable=True, arguments={"x-a": 1}) is made
    assert vhost.declare_queue("q", owner=OTHER, passive=True) is made
    with pytest.raises(NotFound) as caught:
        vhost.declare_queue("other", owner=OWNER, passive=True)
    assert caught.value.reply_text == "NOT_FOUND - no queue 'other' in vhost '/'"


@pytest.mark.parametrize(
    "changed",
    [{"durable": False}, {"auto_delete": True}, {"arguments": {"x-a": 2}}, {"arguments": {}}],
)
def test_inequivalent_queue(vhost: VirtualHost, changed: dict[str, object]) -> None:
    same: dict[str, object] = {"durable": True, "arguments": {"x-a": 1}}
    vhost.declare_queue("q", owner=OWNER, **same)  # type: ignore[arg-type]
    with pytest.raises(PreconditionFailed, match="inequivalent arg"):
        vhost.declare_queue("q", owner=OWNER, **{**same, **changed})  # type: ignore[arg-type]


def test_a_queue_without_a_type_is_classic(vhost: VirtualHost) -> None:
    classic, quorum = {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}
    assert vhost.declare_queue("p", owner=OWNER) is vhost.declare_queue("p", owner=OWNER, arguments=classic)
    assert vhost.declare_queue("q", owner=OWNER, arguments=classic) is vhost.declare_queue("q", owner=OWNER)
    vhost.declare_queue("r", owner=OWNER, arguments=quorum)
    for name, arguments in (("q", quorum), ("r", {}), ("r", classic)):
        with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-queue-type'"):
            vhost.declare_queue(name, owner=OWNER, arguments=arguments)


def test_exclusive_mismatch_is_a_lock(vhost: VirtualHost) -> None:
    vhost.declare_queue("q", owner=OWNER)
    with pytest.raises(ResourceLocked, match="exclusive property value does not match"):
        vhost.declare_queue("q", owner=OWNER, exclusive=True)


def test_inequivalent_text_is_the_known_one(vhost: VirtualHost) -> None:
    vhost.declare_queue("q", owner=OWNER, durable=True)
    with pytest.raises(PreconditionFailed) as caught:
        vhost.declare_queue("q", owner=OWNER)
    assert caught.value.reply_text == (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/':"
        " received 'false' but current is 'true'"
    )


def test_server_named_queue(vhost: VirtualHost) -> None:
    names = {vhost.declare_queue("", owner=OWNER).name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)
    with pytest.raises(AccessRefused, match="reserved prefix"):
        vhost.declare_queue("amq.mine", owner=OWNER)


def test_exclusive_queue_is_locked_to_others_and_ends_with_its_connection(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", owner=OWNER, exclusive=True)
    for use in (
        lambda: vhost.declare_queue("q", owner=OTHER, exclusive=True),
        lambda: vhost.declare_queue("q", owner=OTHER, passive=True),
        lambda: vhost.queue("q", owner=OTHER),
        lambda: vhost.purge_queue("q", owner=OTHER),
        lambda: vhost.delete_queue("q", owner=OTHER),
        lambda: vhost.bind_queue("q", "amq.fanout", "", owner=OTHER),
    ):
        with pytest.raises(ResourceLocked):
            use()
    vhost.connection_closed(OTHER)
    assert "q" in vhost.queues
    vhost.connection_closed(OWNER)
    assert queue.deleted
    assert "q" not in vhost.queues


def test_delete_queue_conditions(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", owner=OWNER)
    publish(vhost, "q", b"m")
    with pytest.raises(PreconditionFailed, match="not empty"):
        vhost.delete_queue("q", owner=OWNER, if_empty=True)
    sink = Sink(0)
    vhost.consume(queue, Consumer("c", sink))
    with pytest.raises(PreconditionFailed, match="in use"):
        vhost.delete_queue("q", owner=OWNER, if_unused=True)
    assert vhost.delete_queue("q", owner=OWNER).messages == 1
    assert sink.gone == ["c"]
    assert vhost.delete_queue("q", owner=OWNER) == (0, Scope.STORE | Scope.LINK)  # waits for its deletion


def test_auto_delete_queue_ends_after_its_last_consumer(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", owner=OWNER, auto_delete=True)
    first, second = Consumer("a", Sink()), Consumer("b", Sink())
    assert vhost.consume(queue, first) == Scope.LINK
    assert vhost.consume(queue, second) == Scope.NONE
    vhost.cancel(queue, first)
    vhost.cancel(queue, first)
    assert "q" in vhost.queues
    vhost.cancel(queue, second)
    assert "q" not in vhost.queues
    vhost.cancel(queue, second)


def test_a_node_that_may_not_decide_deletes_no_abandoned_queue(vhost: VirtualHost) -> None:
    """When the node may decide again, the queues still abandoned are deleted, and those claimed meanwhile
    stay."""
    for name in ("mine", "claimed"):
        vhost.declare_queue(name, owner=OWNER, exclusive=True)
    auto = vhost.declare_queue("auto", owner=OWNER, auto_delete=True)
    again = vhost.declare_queue("again", owner=OWNER, auto_delete=True)
    consumers = [(queue, Consumer("c", Sink())) for queue in (auto, again)]
    for queue, consumer in consumers:
        vhost.consume(queue, consumer)
    vhost.shared.deciding = False
    for queue, consumer in consumers:
        vhost.cancel(queue, consumer)
    vhost.connection_closed(OWNER)
    assert set(vhost.queues) == {"mine", "claimed", "auto", "again"}
    vhost.declare_queue("claimed", owner=OTHER, exclusive=True)
    vhost.consume(again, Consumer("d", Sink()))
    vhost.shared.decide_again()
    assert set(vhost.queues) == {"claimed", "again"}
    vhost.connection_closed(OTHER)
    assert set(vhost.queues) == {"again"}


def test_exclusive_consumer(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", owner=OWNER)
    shared = Consumer("a", Sink())
    vhost.consume(queue, shared)
    with pytest.raises(AccessRefused, match="exclusive use"):
        vhost.consume(queue, Consumer("b", Sink(), exclusive=True))
    vhost.cancel(queue, shared)
    vhost.consume(queue, Consumer("b", Sink(), exclusive=True))
    with pytest.raises(AccessRefused, match="queue 'q' in vhost '/' in exclusive use"):
        vhost.consume(queue, shared)


def test_exchange_declare_errors(vhost: VirtualHost) -> None:
    made = vhost.declare_exchange("x", "topic", durable=True)
    assert vhost.declare_exchange("x", "topic", durable=True) is made
    assert vhost.declare_exchange("x", "", passive=True) is made
    assert vhost.declare_exchange("amq.topic", "topic", durable=True).built_in
    with pytest.raises(PreconditionFailed, match="received 'direct' but current is 'topic'"):
        vhost.declare_exchange("x", "direct", durable=True)
    with pytest.raises(CommandInvalid, match="unknown exchange type 'nonsense'"):
        vhost.declare_exchange("y", "nonsense")
    with pytest.raises(NotFound):
        vhost.declare_exchange("y", "direct", passive=True)
    with pytest.raises(AccessRefused, match="reserved prefix"):
        vhost.declare_exchange("amq.mine", "direct")
    with pytest.raises(AccessRefused, match="default exchange"):
        vhost.declare_exchange("", "direct")


def test_exchange_delete(vhost: VirtualHost) -> None:
    vhost.declare_queue("q", owner=OWNER)
    vhost.declare_exchange("x", "fanout")
    vhost.bind_queue("q", "x", "", owner=OWNER)
    with pytest.raises(PreconditionFailed, match="exchange 'x' in vhost '/' in use"):
        vhost.delete_exchange("x", if_unused=True)
    assert vhost.delete_exchange("x") == Scope.LINK
    assert vhost.delete_exchange("x") == Scope.STORE | Scope.LINK
    with pytest.raises(AccessRefused):
        vhost.delete_exchange("amq.direct")
    with pytest.raises(AccessRefused):
        vhost.delete_exchange("")


def test_auto_delete_exchanges_end_in_a_long_chain(vhost: VirtualHost) -> None:
    recorder = Recorder()
    vhost.history.sinks.append(recorder)
    count = 2000
    for i in range(count):
        vhost.declare_exchange(f"x{i}", "fanout", auto_delete=True)
    vhost.declare_queue("q", owner=OWNER)
    for i in range(1, count):
        vhost.bind_exchange(f"x{i}", f"x{i - 1}", "")
    vhost.bind_queue("q", f"x{count - 1}", "", owner=OWNER)
    vhost.delete_queue("q", owner=OWNER)
    assert not any(name.startswith("x") for name in vhost.exchanges)
    end_tick(vhost)
    kinds = [type(r) for r in recorder.batches[0].records]
    assert kinds[-count - 1 :] == [QueueDelete] + [ExchangeDelete] * count


def test_bindings_at_missing_ends(vhost: VirtualHost) -> None:
    vhost.declare_queue("q", owner=OWNER)
    with pytest.raises(NotFound, match="no exchange 'x'"):
        vhost.bind_queue("q", "x", "", owner=OWNER)
    with pytest.raises(NotFound, match="no queue 'r'"):
        vhost.bind_queue("r", "amq.fanout", "", owner=OWNER)
    with pytest.raises(AccessRefused, match="default exchange"):
        vhost.bind_queue("q", "", "k", owner=OWNER)
    with pytest.raises(AccessRefused, match="default exchange"):
        vhost.bind_exchange("", "amq.fanout", "k")
    assert vhost.unbind_queue("q", "amq.fanout", "never", owner=OWNER) == Scope.LINK


def test_arguments_that_history_cannot_carry(vhost: VirtualHost) -> None:
    with pytest.raises(PreconditionFailed, match="invalid arguments"):
        vhost.declare_queue("q", owner=OWNER, arguments={"x": object()})
    assert "q" not in vhost.queues


def test_needs_and_positions(vhost: VirtualHost) -> None:
    assert vhost.history.position == (1, 0)
    stored = vhost.declare_queue("s", owner=OWNER, durable=True)
    linked = vhost.declare_queue("l", owner=OWNER)
    assert vhost.need(stored.scope) is Need.DURABLE
    assert vhost.need(linked.scope) is Need.APPLIED
    assert vhost.need(Scope.NONE) is Need.NONE
    assert vhost.history.position == (1, 1)
    end_tick(vhost)
    assert vhost.declare_queue("s", owner=OWNER, durable=True) is stored
    assert vhost.history.position == (1, 1)  # nothing new: the repeated answer waits for what there is
    assert end_tick(vhost) is None


def test_a_lone_broker_records_durable_objects_only() -> None:
    vhost = serving(hooks=Hooks())
    vhost.declare_queue("t", owner=OWNER)
    vhost.declare_queue("e", owner=OWNER, durable=True, exclusive=True)
    vhost.declare_exchange("x", "fanout")
    vhost.bind_queue("t", "amq.fanout", "", owner=OWNER)
    assert end_tick(vhost) is None
    vhost.declare_queue("d", owner=OWNER, durable=True)
    assert vhost.bind_queue("d", "amq.fanout", "", owner=OWNER) == Scope.STORE
    assert vhost.bind_queue("d", "x", "", owner=OWNER) == Scope.NONE  # a binding needs both ends
    batch = end_tick(vhost)
    assert batch is not None
    assert len(batch.records) == 2


def test_nothing_is_defined_while_not_serving() -> None:
    vhost = VirtualHosts(Hooks(), History(), uuids()).root
    with pytest.raises(InternalError):
        vhost.declare_queue("q", owner=OWNER)
    assert not vhost.queues
