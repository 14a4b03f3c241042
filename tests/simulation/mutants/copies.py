"""Mutants of the copy: snapshots, live batches and dequeues that make a backup differ from its primary."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from broker.model.history import history
from broker.model.history.epoch_ends import EpochEnd
from broker.model.history.records import Bind, Entry, Envelope, MessageId, Piece, QueueDeclare, id_of
from broker.model.history.replication_id_set import Range
from broker.model.queue.queue import Queue
from broker.model.queue.replica import ReplicaContents
from broker.model.values import Position
from broker.model.vhost import applying, enqueueing
from broker.model.vhost.definitions import Definitions
from broker.model.vhost.vhost import VirtualHost
from ha.adapter import primary_vhost
from ha.adapter.ha_hooks import HaHooks
from ha.adapter.primary_vhost import PrimaryVhost
from ha.adapter.replica.told_definitions import ToldDefinitions
from ha.adapter.replica.vhost import ReplicaVhost
from ha.core.backup import backup
from ha.core.backup.broker_replicator import BrokerReplicator
from ha.core.backup.coming_contents import ComingContents
from ha.core.backup.queue_replicator import QueueReplicator
from ha.core.id_setter import IdSetter
from ha.core.primary import consistency_checkpoints
from ha.core.primary.contents import Place
from ha.core.primary.primary import Primary
from ha.core.primary.remote_backup import Phase
from ha.core.wire.known_targets import KnownTargets, WideRun
from ha.core.wire.link import BatchHead
from ha.core.wire.replicating_subscription import BEFORE_ALL
from tests.simulation.mutants.mutant import Mutant, Patch, never


def _always_the_same(digest_of: Any) -> Any:
    return lambda ids: bytes(consistency_checkpoints.DIGEST)


UNCOMPARED = (
    Patch(consistency_checkpoints, "digest_of", _always_the_same),
    Patch(backup, "digest_of", _always_the_same),
)
"""Copies that differ are not found, and mended, by the nodes themselves."""


def _skip_every_ninth(batch: Any) -> Any:
    def broken(self: BrokerReplicator, head: BatchHead) -> None:
        if head.position.n % 9:
            batch(self, head)
        else:
            self.applied, self.sent_at = head.position, head.sent_at

    return broken


def _whatever_the_ids(place: Any) -> Any:
    def broken(self: KnownTargets, run: WideRun) -> Any:
        slot = self._slots.get(b"".join(run.queues))
        if slot is not None:
            slot.following = run.firsts
        return place(self, run)

    return broken


def _another_message(take: Any) -> Any:
    """Of the same length, so that the batch can be read."""

    def broken(self: ComingContents, number: int) -> list[bytes]:
        own = take(self, number)
        octets = sum(map(len, own))
        last: dict[int, list[bytes]] = self.__dict__.setdefault("last", {})
        found, last[octets] = last.get(octets, own), own
        return found

    return broken


def _skip_the_first(encode_runs: Any) -> Any:
    return lambda self, queue, entries: encode_runs(self, queue, entries[1:])


def _dated_when_it_is_sent(encode_runs: Any) -> Any:
    def broken(self: PrimaryVhost, queue: bytes, entries: list[Entry]) -> list[bytes]:
        now = self._vhosts.wall_ms
        return encode_runs(self, queue, [(seq, _anew(env, wall_ms=now), raw) for seq, env, raw in entries])

    return broken


def _without_its_rank(encode_runs: Any) -> Any:
    def broken(self: PrimaryVhost, queue: bytes, entries: list[Entry]) -> list[bytes]:
        plain = [(seq, _anew(env, expiration=None, priority=0), raw) for seq, env, raw in entries]
        return encode_runs(self, queue, plain)

    return broken


def _anew(env: Envelope, **other: Any) -> Envelope:
    """The envelope with something else in it."""
    names = "persistent", "wall_ms", "channel", "largest_frame", "redelivered", "expiration", "priority"
    fields = {name: getattr(env, name) for name in names}
    return Envelope(env.epoch, env.exchange, env.routing_key, **fields | other)


def _end_before_the_last(piece: Any) -> Any:
    def broken(self: PrimaryVhost, queue: bytes, after: MessageId, most: int) -> Piece | None:
        found: Piece | None = piece(self, queue, after, most)
        if found is not None and found.upto is None and found.entries:
            del found.entries[-1]
        return found

    return broken


def _walk_by_places(piece: Any) -> Any:
    """The next piece begins behind as many messages as there were up to the end of the one before."""

    def broken(self: PrimaryVhost, queue: bytes, after: MessageId, most: int) -> Piece | None:
        seen: dict[bytes, list[MessageId]] = vars(self).setdefault("seen", {})
        whole: Piece | None = piece(self, queue, BEFORE_ALL, 10**9)
        if whole is None:
            return None
        past = 0 if after == BEFORE_ALL else bisect_right(seen[queue], after)
        seen[queue] = [id_of(entry) for entry in whole.entries]
        entries = whole.entries[past : past + most]
        return Piece(entries, id_of(entries[-1]) if past + most < len(whole.entries) else None)

    return broken


def _forget_what_follows_the_last_piece(end: Any) -> Any:
    def broken(self: QueueReplicator) -> None:
        self._model.end_queue(self.queue)

    return broken


def _one_beyond(to_ranges: Any) -> Any:
    def broken(seqs: list[int]) -> list[Range]:
        return [(first, last + 1) for first, last in to_ranges(seqs)]

    return broken


def _find_nothing_too_many(ids_within: Any) -> Any:
    return lambda self, after, upto: {}


def _but_of_built_in_exchanges(parts: Any) -> Any:
    def broken(frozen: Any, most: int) -> Any:
        kept = [r for r in frozen.objects() if not (isinstance(r, Bind) and r.source.startswith("amq."))]
        frozen.objects = lambda: iter(kept)
        return parts(frozen, most)

    return broken


def _forget_tombstones(dequeue: Any) -> Any:
    def broken(self: ReplicaContents, epoch: int, ranges: list[Range]) -> None:
        tombstones, self._tombstones = self._tombstones, None
        dequeue(self, epoch, ranges)
        self._tombstones = tombstones

    return broken


def _forget_what_goes(export: Any) -> Any:
    return lambda self, queue, ids: 0


def _one_epoch_for_all_ids(set_ids: Any) -> Any:
    def broken(self: HaHooks, queue: Queue) -> None:
        queue.ids = IdSetter(1, queue.earlier.get(1, EpochEnd(0)).last + 1)  # type: ignore[assignment]

    return broken


def _of_that_epoch(envelope: Any) -> Any:
    return lambda epoch, *args, **kwargs: envelope(1, *args, **kwargs)


def _keep_the_contents(drop: Any) -> Any:
    """Under the name of the follower's queue that goes."""

    def broken(self: Definitions, queue: Queue, *args: Any) -> None:
        if not self.serving:
            vars(self).setdefault("kept", {})[queue.name] = queue.replica
        drop(self, queue, *args)

    return broken


def _find_the_contents(declare: Any) -> Any:
    def broken(vhost: VirtualHost, record: QueueDeclare) -> None:
        declare(vhost, record)
        kept = vars(vhost).get("kept", {}).pop(record.name, None)
        if kept is not None:
            vhost.queues[record.name].replica = kept

    return broken


def _guard_after_the_snapshot(batch: Any) -> Any:
    """What is published between the two is in neither: its batches reach the joiner without their records."""

    def broken(
        self: Primary, position: Position, wall_ms: int, payload: list[bytes], now: float,
        places: list[Place], wide: list[WideRun],
    ) -> None:  # fmt: skip
        everybody = self.backups
        unguarded = {i: b for i, b in everybody.items() if b.phase is Phase.CATCHING}
        self.backups = {i: b for i, b in everybody.items() if i not in unguarded}
        batch(self, position, wall_ms, payload, now, places, wide)
        self.backups = unguarded
        batch(self, position, wall_ms, [], now, [], [])
        self.backups = everybody

    return broken


MUTANTS = (
    Mutant(
        "acknowledge a batch and drop it",
        "The backup acknowledges a batch whose records it never applied.",
        (2,),
        (Patch(BrokerReplicator, "_batch", _skip_every_ninth),),
    ),
    Mutant(
        "forget dequeues on the backup",
        "A backup keeps what consumers have acknowledged, and delivers all of it again once it is promoted.",
        (13,),
        (Patch(ReplicaContents, "dequeue", never),),
    ),
    Mutant(
        "dequeue one too many",
        "An off-by-one in dequeue ranges: on the backup the message behind those that left goes with them.",
        (2,),
        (Patch(history, "to_ranges", _one_beyond),),
    ),
    Mutant(
        "lose a message of a snapshot",
        "A chunk of the snapshot begins one message too late.",
        (4,),
        (Patch(PrimaryVhost, "encode_runs", _skip_the_first),),
    ),
    Mutant(
        "end a snapshot before its last message",
        "A joiner is ready with a gap at the tail of a queue (Qpid 5973).",
        (4,),
        (Patch(PrimaryVhost, "piece", _end_before_the_last),),
    ),
    Mutant(
        "keep what the primary has not",
        "A rejoining node keeps messages that the new primary's history never had, or has dequeued.",
        (14,),
        (Patch(ReplicaContents, "ids_within", _find_nothing_too_many), *UNCOMPARED),
    ),
    Mutant(
        "forget the end of a snapshot",
        "What a rejoining node holds behind the last piece of a queue is compared with nothing, and stays.",
        (14,),
        (Patch(QueueReplicator, "end", _forget_what_follows_the_last_piece), *UNCOMPARED),
    ),
    Mutant(
        "leave out the bindings of built-in exchanges",
        "A joiner does not get the bindings of amq.direct and its like (Qpid loses them).",
        (13,),
        (Patch(primary_vhost, "_parts", _but_of_built_in_exchanges),),
    ),
    Mutant(
        "put another message in its place",
        "A backup fills a batch with the octets of a message that came ahead earlier, for another one.",
        (2, 4, 5),
        (Patch(ComingContents, "_of", _another_message),),
        because="A message that is replaced is gone, 2, before the copy or the consumer shows another one.",
    ),
    Mutant(
        "leave out ids that do not follow on",
        "A batch leaves out the targets of a run which goes to known queues, though others came in between.",
        (13,),
        (Patch(KnownTargets, "_place", _whatever_the_ids),),
    ),
    Mutant(
        "keep what the primary has not defined",
        "A joiner applies each part of the definitions, and deletes nothing when the last has come.",
        (13, 14),
        (Patch(ToldDefinitions, "others", lambda others: lambda self, vhosts: iter(())),),
        because="Of a copy that was primary before, it is 14.",
    ),
    Mutant(
        "forget the tombstone of an unfetched message",
        "A dequeue overtakes its message's snapshot piece, and the message resurrects on the backup (Qpid).",
        (16,),
        (Patch(ReplicaContents, "dequeue", _forget_tombstones),),
    ),
    Mutant(
        "walk a queue by places",
        "What is dequeued between two pieces moves the rest forward: the next piece begins too late.",
        (4,),
        (Patch(PrimaryVhost, "piece", _walk_by_places),),
    ),
    Mutant(
        "forget what is dropped",
        "A rejoining node drops messages that its new primary never had, and exports them nowhere.",
        (15,),
        (Patch(ReplicaVhost, "_export", _forget_what_goes),),
    ),
    Mutant(
        "number messages without an epoch",
        "A new primary gives ids again that a rejoining broker holds for other messages (Qpid).",
        (15,),
        (Patch(HaHooks, "set_ids", _one_epoch_for_all_ids), Patch(enqueueing, "Envelope", _of_that_epoch)),
    ),
    Mutant(
        "know a queue by its name",
        "A queue deleted and declared anew while the backup was away keeps the old queue's messages there.",
        (13, 14),
        (
            Patch(ReplicaContents, "clear", never),
            Patch(Definitions, "_drop_queue", _keep_the_contents),
            Patch(applying, "_declare_queue", _find_the_contents),
        ),
        because="Of a copy that was primary before, it is 14.",
    ),
    Mutant(
        "snapshot first, guard later",
        "What is published between a queue's snapshot and its guard never reaches the joiner (Qpid 4159).",
        (4,),
        (Patch(Primary, "batch", _guard_after_the_snapshot),),
    ),
    Mutant(
        "date a snapshot when it is sent",
        "To a joiner all messages are new: after a failover their time to live begins once more.",
        (13, 14),
        (Patch(PrimaryVhost, "encode_runs", _dated_when_it_is_sent),),
        because="Of a copy that was primary before, it is 14.",
    ),
    Mutant(
        "leave expirations and priorities out of a snapshot",
        "Messages that a joiner fetched never expire by themselves, and wait behind all others.",
        (13, 14),
        (Patch(PrimaryVhost, "encode_runs", _without_its_rank),),
        because="Of a copy that was primary before, it is 14.",
    ),
)
