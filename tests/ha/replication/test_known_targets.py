"""Batches that leave out the targets of wide runs which the other end of the link knows."""

from __future__ import annotations

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.history.record_codec import encode_record, targets_at
from broker.model.history.record_reader import number_bytes
from broker.model.history.records import EnqueueRun, Envelope
from broker.model.values import Position, Scope
from ha.core import codes
from ha.core.errors import LinkError
from ha.core.wire.known_targets import SLOTS, WIDEST, HeardTargets, KnownTargets, WideRun
from ha.core.wire.link import Frame, StreamDecoder, batch_head
from tests.ha.pair import Pair, raw

HEAD = batch_head(Position(1, 2), 3, 4.0)
RUNS = st.tuples(
    st.lists(st.sampled_from("abc"), min_size=1, unique=True), st.integers(1, 3), st.booleans(), st.booleans()
)


def told(known: KnownTargets, payload: list[bytes], runs: list[WideRun]) -> bytes:
    """The body of the frame."""
    [(kind, body)] = StreamDecoder(Frame).feed(b"".join(known.batch(HEAD, payload, runs)))
    assert kind is Frame.BATCH_OF_TARGETS
    return body


def as_record(names: list[str], firsts: list[int], count: int, *, numbered: bool) -> EnqueueRun:
    envelope = Envelope(7, "x", "k", persistent=True, wall_ms=0, channel=1, largest_frame=100)
    return EnqueueRun(
        [name.encode() * 16 for name in names], firsts, envelope, [b"m"] * count, scope=Scope.LINK,
        numbering=("p", 1, 5) if numbered else None,
    )  # fmt: skip


@given(st.lists(st.lists(RUNS, max_size=3), max_size=8))
def test_the_other_end_makes_them_whole(batches: list[list[tuple[list[str], int, bool, bool]]]) -> None:
    """Not each run is told as a wide one; then ids of its queues are skipped."""
    known, heard, ids = KnownTargets(), HeardTargets(), dict.fromkeys("abc", 1)
    for batch in batches:
        payload, wide = [], []
        for index, (names, count, numbered, is_wide) in enumerate(batch):
            run = as_record(names, [ids[name] for name in names], count, numbered=numbered)
            ids |= {name: ids[name] + count for name in names}
            payload.append(encode_record(run))
            if is_wide:
                wide.append(WideRun(index, targets_at(run), run.queues, run.firsts, count))
        assert heard.batch(told(known, payload, wide)) == ((1, 2), 3, 4.0, b"".join(payload))


def test_what_follows_on_goes_without_its_targets() -> None:
    known, names, sizes = KnownTargets(), [chr(97 + n) for n in range(20)], []
    for first in (1, 3, 6):
        run = as_record(names, [first] * 20, 2, numbered=False)
        wide = WideRun(0, targets_at(run), run.queues, run.firsts, 2)
        sizes.append(len(told(known, [encode_record(run)], [wide])))
    assert sizes == [sizes[0], sizes[0] - 20 * 24, sizes[0]], "the third does not follow on"


def test_no_more_are_known_than_there_are_slots() -> None:
    known, heard = KnownTargets(), HeardTargets()
    for first in (1, 2):
        for n in (*range(SLOTS + 1), SLOTS - 1):
            run = WideRun(0, 0, [n.to_bytes(16, "big")], [first], 1)
            record = run.queues[0] + number_bytes("Q", run.firsts)
            assert heard.batch(told(known, [record], [run])).payload == record
    assert len(known._slots) == len(heard._slots) == SLOTS


@given(st.binary(max_size=120))
def test_hostile_ones_are_a_link_error_or_a_batch(rest: bytes) -> None:
    with suppress(LinkError):
        HeardTargets().batch(HEAD + rest)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ((SLOTS, 0, 1, 1, 0), "slot 64, 1 queues at 0"),
        ((0, 0, WIDEST + 1, 1, 0), "slot 0, 4097 queues at 0"),
        ((0, 0, 1, 1, 1), "slot 0, 1 queues at 1"),
        ((0, 0, 1, 1, 0), "ends in the targets of slot 0"),
        ((3, 1, 1, 1, 0), "slot 3 of the link has 0 targets, and not 1"),
    ],
)
def test_targets_that_cannot_be_are_named(targets: tuple[int, ...], said: str) -> None:
    with pytest.raises(LinkError, match=said):
        HeardTargets().batch(HEAD + pack(">HBBHIQ", 1, *targets))


def test_a_backup_that_links_anew_is_told_all_targets() -> None:
    pair = Pair()
    pair.up()
    a, b = pair
    vhost = a.running.vhost
    for n in range(10):
        pair.declare(a, f"q{n}")
        vhost.bind_queue(f"q{n}", "amq.fanout", "", owner=pair)

    def publish() -> int:
        """The octets that go to the backup."""
        backup = a.running.core.primary.backups[b.running.me.node_id]  # type: ignore[union-attr]
        before = backup.bytes_sent
        route = vhost.route("amq.fanout", "")
        vhost.publish(route, [raw("x")], persistent=True, channel=1, largest_frame=30)
        pair.step()
        sent = backup.bytes_sent - before
        pair.until(lambda: pair.fingerprint(a) == pair.fingerprint(b) and b.status == "ready")
        return sent

    pair.run(0.1)
    first, second = publish(), publish()
    assert first - second == 10 * 24
    pair.reset(a, b)
    pair.until(lambda: b.status != "ready")
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert [publish(), publish()] == [first, second]
    assert not b.told(codes.LINK_MISUSED)
