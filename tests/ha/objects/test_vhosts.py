"""Several virtual hosts on a pair, and in a store: who joins, returns or is promoted has them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.model.history.batch import Batch
from broker.model.history.history import History
from broker.model.history.records import EntryDelete, EntryPut
from broker.model.queue.queue import Queue
from broker.model.values import Position, Scope
from broker.model.vhost.vhosts import VirtualHosts
from broker.store.store import SegmentStore, open_store
from ha.adapter import codes
from ha.adapter.management import status_view
from ha.adapter.recovery import Bases, recover
from tests.broker.model.helpers import OWNER, Everything, end_tick, publish, uuids
from tests.ha.client import Client
from tests.ha.pair import Host, Pair, raw, text

MAY = (
    EntryPut("user", "", "alice", {"tags": []}),
    EntryPut("permission", "x", "alice", {"configure": "", "write": ".*", "read": ".*"}),
)
ABROAD = EntryPut("vhost", "", "abroad", {"description": "", "tags": []})


def declare(pair: Pair, host: Host, *changes: EntryPut | EntryDelete) -> None:
    host.running.vhosts.change_directory(changes)
    pair.run(0.1)


def put(pair: Pair, host: Host, letters: str, vhost: str = "abroad", queue: str = "q") -> Position:
    """One message a letter, into a queue of its own name there."""
    there = host.running.vhosts[vhost]
    if queue not in there.queues:
        there.declare_queue(queue, owner=pair, durable=True)
    there.publish(
        there.route("", queue), [raw(letter) for letter in letters],
        persistent=True, channel=1, largest_frame=30, producer="p/1", first_tag=1,
    )  # fmt: skip
    return there.history.position


def contents(host: Host, vhost: str = "abroad", queue: str = "q") -> str:
    return text(host.running.vhosts[vhost].queues[queue].held_entries())


def equal(pair: Pair) -> bool:
    return len({pair.fingerprint(host) for host in pair.hosts}) == 1


def two(count: int = 2) -> tuple[Pair, list[Host]]:
    """A pair that is up, with a queue of the same name in two virtual hosts."""
    pair = Pair(count)
    pair.up()
    declare(pair, pair[0], ABROAD)
    put(pair, pair[0], "abc", "/")
    put(pair, pair[0], "xyz")
    pair.run(0.2)
    return pair, pair.hosts


def test_a_confirm_waits_for_the_backup_in_each_of_them() -> None:
    pair, (a, b) = two()
    b.syncing = False
    position = put(pair, a, "w")
    pair.run(0.2)
    assert not pair.confirmed(a, position)
    b.syncing = True
    pair.until(lambda: pair.confirmed(a, position))
    assert (contents(b), contents(b, "/")) == ("xyzw", "abc") and equal(pair)


def test_who_joins_gets_all_of_them_and_serves_them_when_promoted() -> None:
    pair, (a, b) = two()
    b.disk_does("new")
    pair.kill(b)
    b.disk_does("new")
    declare(pair, a, EntryPut("vhost", "", "third"))
    put(pair, a, "3", "third")
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert equal(pair) and [contents(b, name) for name in ("/", "abroad", "third")] == ["abc", "xyz", "3"]
    pair.kill(a)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    queue = b.running.vhosts["abroad"].queues["q"]
    assert queue.ready[0][1].redelivered and queue.ids.epoch == b.running.core.epoch
    client = Client("c", b, pair.now)
    pair.run(0.1)
    client.pump(pair.now)
    assert not client.gone
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert equal(pair)


def test_a_returning_primary_drops_what_its_deleted_vhost_held() -> None:
    """What history had is dropped silently; what it never had is exported, and says where it was."""
    pair, (a, b) = two()
    pair.separate(a, b)
    put(pair, a, "!?")  # confirmed by nobody
    pair.run(0.2)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    declare(pair, b, EntryDelete("vhost", "", "abroad"))
    pair.heal()
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert equal(pair) and a.running.vhosts.get("abroad") is None and contents(a, "/") == "abc"
    assert a.running.status()["quarantined"] == 2
    assert any("'abroad/q'" in sentence for sentence in a.told(codes.QUEUE_GONE))
    (exported,) = [data for path, data in a.disk.contents().items() if "quarantine" in path]
    lines = [json.loads(line) for line in exported.splitlines()]
    assert [(line["vhost"], line["name"]) for line in lines] == [("abroad", "q")] * 2
    for host in (a, b):
        pair.kill(host)
    pair.start(a, b)
    pair.run(0.3)
    assert pair.ask(b, "promote")["ok"] and [v.name for v in a.running.vhosts] == ["/"]


def test_one_that_was_made_anew_has_nothing_of_the_one_before() -> None:
    pair, (a, b) = two()
    a.running.vhosts["abroad"].declare_exchange("e", "topic", durable=True)
    pair.run(0.2)
    pair.kill(b)
    declare(pair, a, EntryDelete("vhost", "", "abroad"), ABROAD)
    put(pair, a, "new")
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert equal(pair) and contents(b) == "new" and "e" not in b.running.vhosts["abroad"].exchanges
    assert b.running.status()["quarantined"] == 0


def test_what_a_node_has_alone_is_exported_before_its_virtual_host_ends() -> None:
    """A queue that is not replicated, of when it was the primary."""
    pair, (a, b) = two()
    there = a.running.vhosts["abroad"]
    there.declare_queue("mine", owner=pair, durable=True, arguments={"x-replicate": "none"})
    put(pair, a, "secret", queue="mine")
    pair.run(0.2)
    assert pair.ask(a, "switchover")["ok"]
    pair.until(lambda: a.status == "ready")
    assert contents(a, queue="mine") == "secret"
    declare(pair, b, EntryDelete("vhost", "", "abroad"))
    assert equal(pair) and a.running.vhosts.get("abroad") is None
    assert a.running.status()["quarantined"] == 6
    pair.kill(a)
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert equal(pair) and [v.name for v in a.running.vhosts] == ["/"]


def test_membership_is_told_in_each_of_them() -> None:
    pair, (a, b) = two()
    for vhost in a.running.vhosts:
        vhost.declare_queue("watch", owner=pair, durable=True)
        vhost.bind_queue("watch", "amq.failover", "#", owner=pair)
    pair.run(0.2)
    pair.kill(b)
    pair.run(2.5)
    keys = [[e[1].routing_key for e in v.queues["watch"].held_entries()] for v in a.running.vhosts]
    assert keys[0] == keys[1] and keys[0]


def asked(host: Host, command: str, **args: Any) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    host.running.manage(command, args, answers.append, 0.0)
    return answers[0]


def test_operators_see_all_queues_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_view, "QUERY_AT_ONCE", 1)
    _, (a, _) = two()
    seen = []
    begin: int | None = 0
    while begin is not None:
        status = asked(a, "query", **{"from": begin})["status"]
        seen += [(line["vhost"], line["name"]) for line in status["queue_list"]]
        begin = status["more"]
    assert seen == [("/", "q"), ("abroad", "q")]
    assert asked(a, "query", **{"from": -1})["code"] == "command-bad-arguments"


def test_a_status_looks_at_no_queue() -> None:
    """Monitors ask often, and there may be a hundred thousand queues: clients would wait for each answer."""

    class Counted(dict[bytes, Queue]):
        def values(self) -> Any:
            raise AssertionError("all queues are looked at")

    _, (a, _) = two()
    vhosts = a.running.vhosts
    asked(a, "status")
    vhosts.queues_by_uuid = Counted(vhosts.queues_by_uuid)
    assert asked(a, "status")["status"]["queues"] == 2


def test_operators_see_where_a_queue_is() -> None:
    _, (a, _) = two()
    lines = asked(a, "query")["status"]["queue_list"]
    assert [(line["vhost"], line["name"], line["ready"]) for line in lines] == [
        ("/", "q", 3),
        ("abroad", "q", 3),
    ]
    assert a.running.status()["queues"] == 2
    told = asked(a, "definitions")
    assert [v["name"] for v in told["vhosts"]] == ["/", "abroad"]
    assert [(q["vhost"], q["name"]) for q in told["queues"]] == [("/", "q"), ("abroad", "q")]


class Stored:
    """A sink that is a store."""

    def __init__(self, folder: Path) -> None:
        self.vhosts = VirtualHosts(Everything(), History(), uuids())
        self.bases = Bases(self.vhosts)
        self.store: SegmentStore = open_store(str(folder), segment_bytes=500)
        self.since = recover(self.store, self.vhosts, lambda sentence: None)
        self.store.start(self.bases(), None, self.since)

    def serve(self, epoch: int) -> VirtualHosts:
        self.vhosts.activate(epoch)
        self.vhosts.history.sinks.append(self)
        return self.vhosts

    def batch(self, batch: Batch) -> None:
        self.store.append(batch.position, batch.payload(Scope.STORE), batch.records)
        if self.store.roll_due:
            self.store.roll(self.bases())


def test_a_store_brings_all_of_them_back(tmp_path: Path) -> None:
    one = Stored(tmp_path)
    vhosts = one.serve(1)
    vhosts.change_directory([EntryPut("vhost", "", "x"), EntryPut("vhost", "", "y"), *MAY])
    for name in ("/", "x", "y"):
        there = vhosts[name]
        there.declare_exchange("e", "topic", durable=True)
        there.declare_queue("q", owner=OWNER, durable=True)
        there.bind_queue("q", "e", "k", owner=OWNER)
        publish(
            there, "k", *(b"%d of %s" % (n, name.encode()) for n in range(20)), exchange="e", persistent=True
        )
        end_tick(vhosts.root)
    vhosts.change_directory([EntryDelete("vhost", "", "y")])
    end_tick(vhosts.root)
    one.store.close()
    for _ in range(2):
        again = Stored(tmp_path)
        assert again.since >= Position(1, 1)
        assert again.vhosts.fingerprint(Scope.STORE) == vhosts.fingerprint(Scope.STORE)
        assert [vhost.name for vhost in again.vhosts] == ["/", "x"]
        assert bytes(again.vhosts["x"].queues["q"].held_entries()[-1][2]) == b"19 of x"
        again.store.close()
