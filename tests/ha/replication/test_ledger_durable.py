"""How far a primary's own disk has got is in its ledger before any confirm that rests on it can leave."""

from __future__ import annotations

from itertools import pairwise

from broker.amqp091.server.connection import ServerConnection
from broker.model.values import ORIGIN, Position
from tests.builds import PURE_ONLY
from tests.ha.pair import Host, Notes, Pair


class FlushedNotes(Notes):
    """Knows what was handed to the system, too."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: dict[int, list[tuple[int, int]]] = {}
        self._seen = 0

    def flush(self) -> None:
        for kind, fields in self.kinds[self._seen :]:
            if kind == "durable":
                self.durable.setdefault(fields["epoch"], []).append((fields["first"], fields["last"]))
        self._seen = len(self.kinds)

    def upto(self, epoch: int) -> Position:
        return Position(epoch, self.durable[epoch][-1][1] if epoch in self.durable else 0)


def with_notes() -> tuple[Pair, Host, Host]:
    pair = Pair()
    for host in pair.hosts:
        host.ledger = FlushedNotes()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.1)
    return pair, a, b


def watch(host: Host) -> list[Position]:
    """What the store said at the end of each tick's release: by the time that output is taken it is noted."""
    node, released = host.running, [ORIGIN]
    ledger: FlushedNotes = host.ledger
    end_tick, take_dirty = node.broker.end_tick, node.take_dirty

    def ended(now: float, wall_ms: int) -> None:
        host.sync.run()  # the disk is as quick as it can be: it is done before what is released now
        end_tick(now, wall_ms)
        released.append(node._store.durable)

    def taken() -> list[ServerConnection]:
        assert ledger.upto(node.vhost.history.epoch) >= released[-1]
        return take_dirty()

    node.broker.end_tick = ended  # type: ignore[method-assign]
    node.take_dirty = taken  # type: ignore[method-assign]
    return released


@PURE_ONLY
def test_positions_are_noted_without_a_gap_before_output_is_taken() -> None:
    pair, a, b = with_notes()
    released = watch(a)
    for letter in "abcdefgh":
        pair.publish(a, "q", letter)
        pair.run(0.02)
    epoch = a.running.vhost.history.epoch
    position = Position(epoch, a.running.vhost.history.n)
    assert released[-1] == position == a.ledger.upto(epoch)
    ranges = a.ledger.durable[epoch]
    assert ranges[0][0] == 1
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
    assert not b.ledger.durable, "only of its own epochs does a node say it"


def test_a_disk_that_stands_still_is_seen_in_the_ledger() -> None:
    pair, a, _ = with_notes()
    epoch, before = a.running.vhost.history.epoch, a.ledger.upto(a.running.vhost.history.epoch)
    a.syncing = False
    position = pair.publish(a, "q", "x")
    pair.run(0.5)
    assert a.ledger.upto(epoch) == before and not pair.confirmed(a, position)
    a.syncing = True
    pair.until(lambda: pair.confirmed(a, position))
    pair.run(0.01)
    assert a.ledger.upto(epoch) >= position


def test_each_epoch_begins_anew() -> None:
    pair, a, b = with_notes()
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    position = pair.publish(b, "q", "x")
    pair.until(lambda: pair.confirmed(b, position))
    pair.run(0.1)
    assert b.ledger.durable[position.epoch][0][0] == 1
    assert b.ledger.upto(position.epoch) >= position
    assert list(b.ledger.durable) == [position.epoch]


def test_the_last_words_are_noted_at_a_clean_end() -> None:
    pair, a, _ = with_notes()
    a.syncing = False
    position = pair.publish(a, "q", "x")
    pair.run(0.1)
    a.running.stop(pair.now)
    a.ledger.flush()
    assert a.ledger.upto(position.epoch) >= position
