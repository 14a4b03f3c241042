"""Several virtual hosts in one history: equal names stay apart; deletion; followers."""

from __future__ import annotations

import pytest

from broker.errors import NotFound
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.history.record_codec import decode_records, encode_record
from broker.model.history.records import EntryDelete, EntryPut, ExchangeDelete, QueueDeclare, QueueDelete
from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.values import Reason, Scope
from broker.model.vhost.directory import EntryFault
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from tests.broker.model.helpers import OWNER, Everything, Follower, Recorder, Sink, end_tick, publish, uuids

X = EntryPut("vhost", "", "x", {"description": "another", "tags": []})
NO_X = EntryDelete("vhost", "", "x")
ALICE = EntryPut("user", "", "alice", {"tags": []})
MAY = EntryPut("permission", "x", "alice", {"configure": "", "write": ".*", "read": ".*"})
SHORT = EntryPut("policy", "x", "short", {"pattern": "", "definition": {"max-length": 5}})


def made(*changes: EntryPut) -> tuple[VirtualHosts, Follower]:
    """Serving virtual hosts with `x`, and their follower."""
    vhosts, follower = VirtualHosts(Everything(), History(), uuids()), Follower()
    vhosts.activate(1)
    vhosts.history.sinks.append(follower)
    vhosts.change_directory([X, *changes])
    return vhosts, follower


def filled(vhost: VirtualHost, *bodies: bytes) -> Queue:
    """The same objects in every virtual host: exchange `e`, queue `q` bound to it, and messages by both
    routes."""
    vhost.declare_exchange("e", "topic", durable=True)
    queue = vhost.declare_queue("q", owner=OWNER, durable=True)
    vhost.bind_queue("q", "e", "k.#", owner=OWNER)
    vhost.bind_exchange("e", "amq.topic", "k.1")
    publish(vhost, "k.1", *bodies, exchange="e", persistent=True)
    return queue


def raws(queue: Queue) -> list[bytes]:
    return [bytes(raw) for _, _, raw in queue.held_entries()]


def two() -> tuple[VirtualHosts, Follower]:
    vhosts, follower = made(ALICE, MAY, SHORT)
    filled(vhosts.root, b"here")
    filled(vhosts["x"], b"there", b"too")
    end_tick(vhosts.root)
    return vhosts, follower


def test_queues_and_exchanges_of_the_same_name_do_not_meet() -> None:
    vhosts, _ = two()
    here, there = vhosts.root, vhosts["x"]
    assert raws(here.queues["q"]) == [b"here"] and raws(there.queues["q"]) == [b"there", b"too"]
    publish(there, "q", b"by name")
    publish(there, "k.1", b"by way", exchange="amq.topic")
    assert raws(there.queues["q"])[2:] == [b"by name", b"by way"]
    assert raws(here.queues["q"]) == [b"here"]
    here.delete_queue("q", owner=OWNER)
    here.delete_exchange("e")
    assert "q" in there.queues and [q.name for q in there.route("e", "k.9").queues] == ["q"]
    assert here.route("", "q").queues == ()
    with pytest.raises(NotFound, match="no exchange 'e' in vhost '/'"):
        here.route("e", "k.1")
    with pytest.raises(NotFound, match="no queue 'none' in vhost 'x'"):
        there.queue("none", owner=OWNER)


def test_each_route_goes_stale_by_its_own_virtual_host_alone() -> None:
    vhosts, _ = two()
    route, generation = vhosts.root.route("e", "k.1"), vhosts.generation
    vhosts["x"].declare_queue("other", owner=OWNER)
    assert route.generation == vhosts.root.generation and vhosts.generation > generation


def test_dead_letters_stay_in_their_virtual_host() -> None:
    vhosts, follower = made()
    for vhost in vhosts:
        vhost.declare_queue("dead", owner=OWNER)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-length": 1}
        vhost.declare_queue("q", owner=OWNER, arguments=arguments)
    publish(vhosts["x"], "q", b"1", b"2")
    end_tick(vhosts.root)
    assert raws(vhosts["x"].queues["dead"]) == [b"1"] and raws(vhosts.root.queues["dead"]) == []
    assert follower.vhost.shared.fingerprint() == vhosts.fingerprint()


def test_followers_and_later_joiners_have_the_same() -> None:
    vhosts, follower = two()
    followed = follower.vhost.shared
    assert followed.fingerprint() == vhosts.fingerprint()
    assert raws(followed["x"].queues["q"]) == [b"there", b"too"] and len(followed) == 2
    joiner = VirtualHosts(Hooks(), History(), uuids())
    for record in decode_records(b"".join(map(encode_record, vhosts.definitions(Scope.LINK)))):
        joiner.apply(record)
    assert joiner.definitions(Scope.LINK) == vhosts.definitions(Scope.LINK)
    assert joiner["x"].queues["q"].uuid == vhosts["x"].queues["q"].uuid
    assert [q.name for q in joiner["x"].route("amq.topic", "k.1").queues] == ["q"]


def test_a_promoted_node_serves_all_of_them() -> None:
    _, follower = two()
    followed = follower.vhost.shared
    followed.activate(2)
    sink = Sink()
    followed["x"].consume(followed["x"].queues["q"], Consumer("c", sink))
    followed.dispatch()
    assert len(sink.got) == 2 and all(envelope.redelivered for _, envelope, _ in sink.got)
    followed.deactivate()
    assert not followed["x"].serving


def test_a_deleted_one_takes_everything_in_it_along_in_one_batch() -> None:
    vhosts, follower = two()
    gone, ending = vhosts["x"], list[str]()
    vhosts.ending = lambda vhost: ending.append(f"{vhost.name} with {len(vhost.queues)}")
    queue, sink, recorder = gone.queues["q"], Sink(), Recorder()
    gone.consume(queue, Consumer("c", sink))
    vhosts.history.sinks.append(recorder)
    vhosts.change_directory([NO_X])
    end_tick(vhosts.root)
    assert ending == ["x with 1"] and sink.gone == ["c"]
    assert queue.deleted and vhosts.get("x") is None and queue.uuid not in vhosts.queues_by_uuid
    directory = vhosts.directory
    assert not directory.permissions and not directory.policies and list(directory.vhosts) == ["/"]
    (batch,) = recorder.batches
    kinds = [type(record).__name__ for record in batch.records]
    assert kinds[-2:] == ["QueueDelete", "EntryDelete"] and kinds.count("Dequeue") == 1
    followed = follower.vhost.shared
    assert followed.get("x") is None and followed.fingerprint() == vhosts.fingerprint()
    assert [uuid for uuid, _ in followed.deleted_queues] == [queue.uuid]
    assert raws(followed.root.queues["q"]) == [b"here"]


def test_one_of_the_same_name_begins_empty() -> None:
    vhosts, follower = two()
    vhosts.change_directory([NO_X, X])
    end_tick(vhosts.root)
    assert (
        not vhosts["x"].queues and "e" not in vhosts["x"].exchanges and "amq.topic" in vhosts["x"].exchanges
    )
    assert follower.vhost.shared.fingerprint() == vhosts.fingerprint()


def test_a_followers_own_queues_are_deleted_with_the_virtual_host() -> None:
    vhosts, follower = two()
    followed = follower.vhost.shared
    followed.apply(QueueDeclare(b"l" * 16, "local", True, False, False, scope=Scope.STORE, vhost="x"))
    followed.apply(QueueDeclare(b"h" * 16, "local", True, False, False, scope=Scope.STORE))
    vhosts.change_directory([NO_X])
    end_tick(vhosts.root)
    assert b"l" * 16 not in followed.queues_by_uuid and "local" in followed.root.queues


def test_records_of_an_unknown_virtual_host_are_ignored() -> None:
    vhosts = VirtualHosts(Hooks(), History(), uuids())
    before = vhosts.fingerprint()
    vhosts.apply(QueueDeclare(b"q" * 16, "q", True, False, False, vhost="gone"))
    vhosts.apply(ExchangeDelete("e", vhost="gone"))
    vhosts.apply(QueueDelete(b"q" * 16, "q"))
    vhosts.apply(EntryDelete("vhost", "", "gone"))
    assert vhosts.fingerprint() == before and len(vhosts) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (EntryDelete("vhost", "", "/"), "virtual host '/' is always there: it cannot be deleted"),
        (EntryPut("vhost", "", ""), "a name has 1 to 255 octets, not 0"),
        (EntryPut("vhost", "", "é" * 128), "a name has 1 to 255 octets, not 256"),
        (EntryPut("vhost", "", "a\nb"), "characters that cannot be printed"),
        (EntryPut("vhost", "x", "y"), "a vhost is of no virtual host"),
        (EntryPut("vhost", "", "y", {"description": 1}), "description is a text"),
        (EntryPut("vhost", "", "y", {"description": "d" * 4097}), "description is a text"),
        (EntryPut("vhost", "", "y", {"tags": "t"}), "tags is a list"),
        (EntryPut("vhost", "", "y", {"tags": [""]}), "'' is no tag"),
        (EntryPut("vhost", "", "y", {"limits": {}}), "'limits' is not known; it has description, tags"),
        (
            EntryPut("policy", "y", "p", {"pattern": "", "definition": {"max-length": 1}}),
            "no virtual host 'y'",
        ),
    ],
)
def test_invalid_changes_are_refused_and_change_nothing(change: EntryPut | EntryDelete, why: str) -> None:
    vhosts, _ = made()
    before = vhosts.fingerprint()
    with pytest.raises(EntryFault, match=why):
        vhosts.change_directory([EntryPut("vhost", "", "z"), change])
    assert vhosts.fingerprint() == before and vhosts.get("z") is None


def test_the_first_one_may_be_described_and_no_more() -> None:
    vhosts, follower = made()
    assert vhosts.change_directory([EntryPut("vhost", "", "/", {"description": "all"})])
    end_tick(vhosts.root)
    assert follower.vhost.shared.directory.vhosts["/"] == "all"
    follower.vhost.shared.apply(EntryDelete("vhost", "", "/"))  # of a primary that never described it
    assert follower.vhost.shared.get("/") is follower.vhost
    assert follower.vhost.shared.directory.vhosts == {"/": "", "x": "another"}


def test_a_permission_may_come_with_its_virtual_host() -> None:
    vhosts, _ = made()
    y = EntryPut("vhost", "", "y")
    assert vhosts.change_directory([ALICE, y, EntryPut("permission", "y", "alice", MAY.value)])
    with pytest.raises(EntryFault, match="no virtual host 'y'"):
        vhosts.change_directory(
            [EntryDelete("vhost", "", "y"), EntryPut("permission", "y", "alice", MAY.value)]
        )
    assert ("y", "alice") in vhosts.directory.permissions


def test_reasons_and_names_for_people() -> None:
    vhosts, _ = two()
    lines = {(line.vhost, line.name) for line in vhosts.list_queues()}
    assert lines == {("/", "q"), ("x", "q")}
    assert [q.title for q in vhosts.queues_by_uuid.values()] == ["q", "x/q"]
    assert vhosts["x"].queues["q"].declaration().title == "x/q"
    vhosts.change_directory([NO_X])
    end_tick(vhosts.root)
    assert vhosts.history.left[Reason.DELETED] == 2
