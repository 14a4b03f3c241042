"""A follower that applies a primary's history equals it at the end of every tick, whatever clients do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.errors import AmqpError, InternalError
from broker.model.history.records import EntryDelete, EntryPut, QueueDeclare, QueueDelete
from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.values import Reason, Scope
from tests.broker.model.helpers import OWNER, Everything, Follower, Sink, end_tick, publish, serving

QUEUE = st.sampled_from(["a", "b", "c"])
EXCHANGE = st.sampled_from(["x", "y", "amq.fanout", "amq.topic"])
KEY = st.sampled_from(["k", "k.l", "#"])


class PrimaryAndFollowers(RuleBasedStateMachine):
    """A primary, a backup that sees the link's records, and a node that recovers from the store's records.

    `primary`: the virtual host in which clients act now, `/` or another that is created and deleted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 1
        self.primary = serving(1, Everything())
        self.backup = Follower(Scope.LINK)
        self.primary.history.sinks.append(self.backup)
        self.sinks: dict[str, Sink] = {}
        self.consumers: dict[str, tuple[Queue, Consumer]] = {}

    def _held(self, name: str) -> list[tuple[int, object, bytes]]:
        sink = self.sinks.get(name)
        return list(sink.got) if sink else []

    @rule()
    def go_to_the_other_virtual_host(self) -> None:
        whole = self.primary.shared
        if self.primary.name != "/":
            self.primary = whole.root
        else:
            whole.change_directory([EntryPut("vhost", "", "v", {"description": "", "tags": []})])
            self.primary = whole["v"]

    @rule()
    def delete_the_other_virtual_host(self) -> None:
        whole = self.primary.shared
        self.primary = whole.root
        whole.change_directory([EntryDelete("vhost", "", "v")])
        self.consumers = {key: at for key, at in self.consumers.items() if at[0].vhost == "/"}

    def _key(self, name: str) -> str:
        return f"{self.primary.name} {name}"

    @rule(name=QUEUE, durable=st.booleans(), auto_delete=st.booleans())
    def declare(self, name: str, durable: bool, auto_delete: bool) -> None:
        if name not in self.primary.queues:
            self.primary.declare_queue(name, owner=OWNER, durable=durable, auto_delete=auto_delete)

    @rule(
        name=st.sampled_from(["x", "y"]),
        type_=st.sampled_from(["fanout", "topic", "direct"]),
        auto=st.booleans(),
    )
    def declare_exchange(self, name: str, type_: str, auto: bool) -> None:
        if name not in self.primary.exchanges:
            self.primary.declare_exchange(name, type_, durable=True, auto_delete=auto)

    @rule(name=QUEUE, exchange=EXCHANGE, key=KEY, bind=st.booleans())
    def bind(self, name: str, exchange: str, key: str, bind: bool) -> None:
        if name in self.primary.queues and exchange in self.primary.exchanges:
            change = self.primary.bind_queue if bind else self.primary.unbind_queue
            change(name, exchange, key, {"n": 1}, owner=OWNER)

    @rule(destination=st.sampled_from(["x", "y"]), source=EXCHANGE, bind=st.booleans())
    def bind_exchange(self, destination: str, source: str, bind: bool) -> None:
        if destination in self.primary.exchanges and source in self.primary.exchanges:
            change = self.primary.bind_exchange if bind else self.primary.unbind_exchange
            change(destination, source, "k")

    @rule(name=QUEUE, count=st.integers(1, 5), persistent=st.booleans())
    def publish(self, name: str, count: int, persistent: bool) -> None:
        publish(self.primary, name, *[b"m"] * count, persistent=persistent)

    @rule(exchange=EXCHANGE, key=KEY, count=st.integers(1, 3))
    def publish_to_exchange(self, exchange: str, key: str, count: int) -> None:
        if exchange in self.primary.exchanges:
            publish(self.primary, key, *[b"m"] * count, exchange=exchange)

    @rule(name=QUEUE, no_ack=st.booleans())
    def consume(self, name: str, no_ack: bool) -> None:
        queue = self.primary.queues.get(name)
        key = self._key(name)
        if queue is not None and key not in self.consumers:
            self.sinks[key] = Sink()
            self.consumers[key] = queue, Consumer(name, self.sinks[key], no_ack=no_ack)
            self.primary.consume(*self.consumers[key])

    @rule(name=QUEUE, data=st.data(), how=st.sampled_from(["ack", "requeue", "reject"]))
    def settle(self, name: str, data: st.DataObject, how: str) -> None:
        queue, consumer = self.consumers.get(self._key(name), (None, None))
        sink = self.sinks.get(self._key(name))
        if queue is None or consumer is None or sink is None or consumer.no_ack or not sink.got:
            return
        some = data.draw(st.lists(st.sampled_from(range(len(sink.got))), unique=True))
        entries = [sink.got[i] for i in some]
        sink.got = [entry for i, entry in enumerate(sink.got) if i not in some]
        if how == "ack":
            queue.acknowledge(entries)
        elif how == "requeue":
            queue.requeue(entries)
        else:
            queue.drop(entries, Reason.REJECTED)

    @rule(name=QUEUE)
    def cancel(self, name: str) -> None:
        queue, consumer = self.consumers.pop(self._key(name), (None, None))
        if queue is not None and consumer is not None:
            if not consumer.no_ack:
                queue.requeue(self.sinks[self._key(name)].got)
            self.primary.cancel(queue, consumer)

    @rule(name=QUEUE)
    def purge(self, name: str) -> None:
        if name in self.primary.queues:
            self.primary.purge_queue(name, owner=OWNER)

    @rule(name=QUEUE)
    def delete(self, name: str) -> None:
        self.primary.delete_queue(name, owner=OWNER)
        self.consumers.pop(self._key(name), None)

    @rule(name=st.sampled_from(["x", "y"]))
    def delete_exchange(self, name: str) -> None:
        self.primary.delete_exchange(name)

    @rule()
    def end_tick(self) -> None:
        end_tick(self.primary)

    @rule()
    def fail_over(self) -> None:
        """The backup serves, and a new backup starts from its definitions and contents."""
        end_tick(self.primary)
        self.epoch += 1
        promoted = self.backup.vhost.shared
        for vhost in promoted:
            vhost.hooks = Everything()
        promoted.hooks = Everything()
        promoted.activate(self.epoch)
        joiner = Follower(Scope.LINK)
        for record in promoted.definitions(Scope.LINK):
            joiner.vhost.shared.apply(record)
        for queue in promoted.queues_by_uuid.values():
            for seq, envelope, raw in queue.held_entries():
                joiner.vhost.shared.queues_by_uuid[queue.uuid].replica.add_run(seq, envelope, [raw])
        promoted.history.sinks.append(joiner)
        for queue in promoted.queues_by_uuid.values():
            assert all(e[1].redelivered for e in queue.ready)
        self.primary, self.backup = promoted.root, joiner
        self.consumers.clear()
        self.sinks.clear()

    @invariant()
    def equal_at_the_end_of_a_tick(self) -> None:
        end_tick(self.primary)
        assert self.primary.shared.fingerprint(Scope.LINK) == self.backup.vhost.shared.fingerprint(Scope.LINK)
        assert self.primary.shared.fingerprint() == self.backup.vhost.shared.fingerprint()

    @invariant()
    def nothing_is_counted_wrongly(self) -> None:
        for queue in self.primary.shared.queues_by_uuid.values():
            ids = [(e[1].epoch, e[0]) for e in queue.ready]
            assert ids == sorted(ids)
            assert queue.total_count == sum(len(held) for held in queue.snapshot().values())
            assert queue._other_epochs == sum(
                1 for e in queue.held_entries() if e[1].epoch != queue.ids.epoch
            )
            key = f"{queue.vhost} {queue.name}"
            _, consumer = self.consumers.get(key, (None, None))
            if consumer is not None and not consumer.no_ack:
                assert queue.unacked_count == len(self.sinks[key].got)


TestPrimaryAndFollowers = PrimaryAndFollowers.TestCase
TestPrimaryAndFollowers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_recovery_from_the_store_keeps_durable_objects() -> None:
    primary, store = serving(1), Follower(Scope.STORE)
    primary.history.sinks.append(store)
    primary.declare_queue("d", owner=OWNER, durable=True)
    primary.declare_queue("t", owner=OWNER)
    primary.bind_queue("d", "amq.topic", "k", owner=OWNER)
    publish(primary, "d", b"1", b"2", b"3", persistent=True)
    publish(primary, "d", b"4")
    publish(primary, "t", b"5", persistent=True)
    end_tick(primary)
    entry = primary.queues["d"].pop(no_ack=True)
    assert entry is not None
    end_tick(primary)
    recovered = store.vhost
    assert list(recovered.queues) == ["d"]
    recovered.shared.activate(2)
    assert [raw for _, _, raw in recovered.queues["d"].ready] == [b"2", b"3"]
    assert [q.name for q in recovered.route("amq.topic", "k").queues] == ["d"]


def test_a_redeclared_name_never_mixes_two_queues() -> None:
    primary, backup = serving(1), Follower()
    primary.history.sinks.append(backup)
    for _ in range(2):
        primary.declare_queue("q", owner=OWNER)
        publish(primary, "q", b"m", b"n")
        primary.delete_queue("q", owner=OWNER)
    primary.declare_queue("q", owner=OWNER)
    publish(primary, "q", b"o")
    end_tick(primary)
    assert [raw for _, _, raw in backup.vhost.queues["q"].replica.entries()] == [b"o"]
    # a follower that missed the deletion sees the new queue only
    namesake = QueueDeclare(b"z" * 16, "q", False, False, False, scope=Scope.LINK)
    backup.vhost.shared.apply(namesake)
    assert backup.vhost.queues["q"].uuid == b"z" * 16
    assert backup.vhost.queues["q"].total_count == 0
    backup.vhost.shared.apply(QueueDelete(b"y" * 16, "q", Scope.LINK))
    assert "q" in backup.vhost.queues


def test_records_apply_twice_without_harm() -> None:
    primary, once = serving(1), Follower()
    primary.history.sinks.append(once)
    primary.declare_exchange("x", "fanout", durable=True)
    queue = primary.declare_queue("q", owner=OWNER, auto_delete=True)
    primary.bind_queue("q", "x", "", owner=OWNER)
    primary.consume(queue, Consumer("c", Sink(1)))
    publish(primary, "", b"1", b"2", exchange="x")
    end_tick(primary)
    before = once.vhost.shared.fingerprint()
    for batch in once.batches[:]:
        once.batch(batch)
    assert once.vhost.shared.fingerprint() == before == primary.shared.fingerprint()


def test_a_serving_virtual_host_follows_nobody() -> None:
    with pytest.raises(InternalError):
        serving(1).shared.apply(QueueDelete(b"y" * 16, "q"))
    assert issubclass(InternalError, AmqpError)
