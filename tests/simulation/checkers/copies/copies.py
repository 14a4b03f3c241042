"""The copy is a copy (13), that of an old primary too (14), and its dequeues may come as they like (16)."""

from __future__ import annotations

import zlib
from random import Random

from broker.model.history.records import Envelope
from broker.model.queue.replica import ReplicaContents
from tests.simulation.harness.inspection import HELD, Message, definitions, ends, key_of, replicated
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

SHOWN = 3
"""Of the messages or definitions that only one copy has."""


def check_copies_13and14(
    primary: Machine, backup: Machine, *, was_primary: bool = False, mended: bool = False
) -> None:
    """At a quiet point the backup's objects and messages are the primary's. 14: of one that was primary.
    `mended`: it has had a queue sent again. It may have kept messages that nobody knew of, and with them
    epochs that all others have forgotten; and queues that were deleted before they came do not come."""
    number = 14 if was_primary else 13
    ours, theirs = replicated(primary), replicated(backup)
    one, other = definitions(primary), definitions(backup)
    if one != other:
        _differ(number, "definitions", primary, backup, one, other)
    whole, far = ends(primary), ends(backup)
    if mended:
        whole = {of: text for of, text in whole.items() if not of[1]}
        far = {of: far[of] for of in far.keys() & whole.keys()}
    if whole != far:
        one, other = sorted(whole.values()), sorted(far.values())
        _differ(number, "how far history went", primary, backup, one, other)
    if ours == theirs:
        return
    for part in sorted(ours.keys() | theirs.keys()):
        mine, its = ours.get(part, []), theirs.get(part, [])
        if mine != its:
            _differ(number, f"queue {part[0]} {part[1]}", primary, backup, _text(mine), _text(its))


def _text(held: list[Message]) -> list[str]:
    """Keys, and whatever else may differ."""
    return [
        f"{key_of(m.raw)} (id {m.sequence} of epoch {m.epoch}, {len(m.raw)} bytes, checksum "
        f"{zlib.crc32(m.raw):08x}, of channel {m.channel} in frames of up to {m.largest_frame}, "
        f"from {m.exchange!r} by {m.routing_key!r}{', persistent' if m.persistent else ''}, "
        f"enqueued at {m.wall_ms}, expires after {m.expiration} ms, priority {m.priority})"
        for m in held
    ]


def _differ(
    number: int, part: str, primary: Machine, backup: Machine, one: list[str], other: list[str]
) -> None:
    only, extra = [x for x in one if x not in other], [x for x in other if x not in one]
    raise Violation(
        number, f"{part}: {len(only)} only on primary {primary.name}{_some(only)}, "
        f"{len(extra)} only on backup {backup.name}{_some(extra)}",
    )  # fmt: skip


def _some(parts: list[str]) -> str:
    """The first of them."""
    return f" [{', '.join(parts[:SHOWN])}]" if parts else ""


def check_dequeues_16(name: str, held: list[HELD], rng: Random) -> None:
    """16: an incomplete copy of the queue `name` that gets the messages `held` and dequeues of some of them,
    some twice, in any order, ends up with the others."""
    gone = {(epoch, sequence) for epoch, sequence, _ in held if rng.random() < 0.5}
    steps: list[tuple[int, int, bytes | None]] = [*held]
    steps += [(epoch, sequence, None) for epoch, sequence in sorted(gone) for _ in range(rng.choice((1, 2)))]
    rng.shuffle(steps)
    copy = ReplicaContents()
    copy.begin_incomplete((2**63, 0))
    for epoch, sequence, raw in steps:
        if raw is None:
            copy.dequeue(epoch, [(sequence, sequence)])
        else:
            envelope = Envelope(epoch, "", "q", persistent=True, wall_ms=0, channel=1, largest_frame=len(raw))
            copy.add_run(sequence, envelope, [raw])
    copy.complete()
    left = [(envelope.epoch, sequence) for sequence, envelope, _ in copy.entries()]
    wanted = sorted((epoch, sequence) for epoch, sequence, _ in held if (epoch, sequence) not in gone)
    if left != wanted:
        raise Violation(
            16, f"an incomplete copy of {name}, given beside the run its {len(held)} messages and dequeues "
            f"of {len(gone)} of them in another order, {_of_another_order(steps, left, wanted)}",
        )  # fmt: skip


def _of_another_order(
    steps: list[tuple[int, int, bytes | None]], left: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> str:
    """What is lost and what is back, and how the first of these came and went."""
    lost, back = [x for x in wanted if x not in left], [x for x in left if x not in wanted]
    if not lost and not back:
        return "has the others in a wrong order"
    names = {
        (epoch, sequence): f"{key_of(raw)} (id {sequence} of epoch {epoch})"
        for epoch, sequence, raw in steps if raw is not None
    }  # fmt: skip
    parts = [
        f"{verb} {len(some)}{_some([names.get(one, str(one)) for one in some])}"
        for some, verb in ((lost, "lacks"), (back, "has got back")) if some
    ]  # fmt: skip
    first = (lost or back)[0]
    came = [
        "its dequeue" if raw is None else "the message itself"
        for epoch, sequence, raw in steps if (epoch, sequence) == first
    ]  # fmt: skip
    return f"{' and '.join(parts)}; of the first of these came {', then '.join(came)}"
