"""The segment log: what comes back, what is cut, and what is refused."""

from __future__ import annotations

import copy
import zlib

import pytest

from broker.model.values import ORIGIN, Position
from broker.store.errors import StoreCorrupt, StoreMisuse, StoreUnusable
from broker.store.segment_format import FRAME_HEAD_BYTES, HEADER_BYTES, LOG, pack_header
from tests.broker.store.batches import (
    DIRECTORY,
    batch,
    open_log,
    payload,
    recovered,
    segments,
    stored,
    written,
)
from tests.simulation.virtual_disk import VirtualDisk

FIRST = f"{DIRECTORY}/{1:016d}.segment"


def size_of(n: int) -> int:
    return FRAME_HEAD_BYTES + len(b"".join(payload(n)))


def test_an_empty_directory_is_an_empty_log() -> None:
    log, found = recovered(VirtualDisk())
    assert (found, log.last_position, log.notices) == ([], ORIGIN, [])


def test_batches_come_back_in_order_with_their_positions() -> None:
    log, found = recovered(written([1], [2, 3], [4]))
    assert found == [stored(n) for n in (1, 2, 3, 4)]
    assert log.last_position == Position(1, 4)
    assert log.notices == []


def test_the_log_goes_on_after_a_restart_and_over_many_segments() -> None:
    disk = written([1], [2], [3], segment_bytes=100)
    disk = written([4], [5, 6], segment_bytes=100, disk=disk)
    log, found = recovered(disk)
    assert found == [stored(n) for n in range(1, 7)]
    assert len(segments(disk)) > 2
    assert log.stored_bytes == sum(map(len, disk.contents().values()))


def test_a_batch_larger_than_the_reading_window_comes_back() -> None:
    disk = VirtualDisk()
    log, _ = recovered(disk)
    large = [b"x" * 3_000_000, b"y" * 6_000_000]
    log.write([batch(1), (Position(1, 2), large), batch(3)])
    log.sync()
    _, found = recovered(disk)
    assert [b.position.n for b in found] == [1, 2, 3]
    assert found[1].payload == b"".join(large)
    assert found[2] == stored(3)


def test_a_tail_torn_at_any_byte_is_cut_and_the_log_goes_on() -> None:
    whole = written([1], [2], [3])
    size = whole.size(FIRST)
    ends = [HEADER_BYTES + sum(map(size_of, range(1, n + 1))) for n in range(4)]
    assert ends[-1] == size
    for cut in range(size + 1):
        disk = copy.deepcopy(whole)
        disk.cut(FIRST, cut)
        log, found = recovered(disk)
        count = sum(end <= cut for end in ends[1:])
        assert found == [stored(n) for n in range(1, count + 1)], cut
        assert len(log.notices) == (cut not in ends)
        log.write([batch(9)])
        log.sync()
        disk.power_loss()
        log, again = recovered(disk)
        assert again == [*found, stored(9)]
        assert log.notices == []


def test_a_last_group_damaged_at_any_byte_is_cut_as_torn() -> None:
    whole = written([1], [2, 3])
    start = HEADER_BYTES + size_of(1)
    for offset in range(start, whole.size(FIRST)):
        disk = copy.deepcopy(whole)
        disk.damage(FIRST, offset)
        log, found = recovered(disk)
        expected = [stored(1)] if offset < start + size_of(2) else [stored(1), stored(2)]
        assert found == expected
        assert "nothing of them was confirmed" in log.notices[0]


def test_synced_bytes_damaged_anywhere_are_refused_with_file_and_offset() -> None:
    whole = written([1], [2], [3])
    for offset in range(HEADER_BYTES, HEADER_BYTES + size_of(1) + size_of(2)):
        disk = copy.deepcopy(whole)
        disk.damage(FIRST, offset)
        before = disk.contents()
        with pytest.raises(StoreCorrupt) as caught:
            recovered(disk)
        assert caught.value.path == FIRST
        assert caught.value.offset == HEADER_BYTES + (
            size_of(1) if offset >= HEADER_BYTES + size_of(1) else 0
        )
        assert FIRST in str(caught.value) and "\n" not in str(caught.value)
        assert disk.contents() == before


def test_a_damaged_header_is_refused() -> None:
    for offset in range(HEADER_BYTES):
        disk = written([1])
        disk.damage(FIRST, offset)
        with pytest.raises(StoreCorrupt, match="offset 0"):
            recovered(disk)


def test_a_segment_that_was_left_or_closed_cleanly_admits_no_damage_and_no_cut() -> None:
    left = written([1, 2], [3], segment_bytes=100)
    closed = VirtualDisk()
    log, _ = recovered(closed)
    log.write([batch(1), batch(2)])
    log.sync()
    log.close(clean=True)
    for whole in (left, closed):
        size = whole.size(FIRST)
        for offset in range(HEADER_BYTES, size):
            disk = copy.deepcopy(whole)
            disk.damage(FIRST, offset, flip=1)
            if whole is left or offset < size - FRAME_HEAD_BYTES:
                with pytest.raises(StoreCorrupt):
                    recovered(disk)
            else:
                assert recovered(disk)[1] == [stored(1), stored(2)]
        disk = copy.deepcopy(left)
        disk.cut(FIRST, HEADER_BYTES + size_of(1))
        with pytest.raises(StoreCorrupt, match="missing"):
            recovered(disk)


def test_after_a_clean_close_the_next_life_begins_a_new_segment() -> None:
    disk = VirtualDisk()
    log, _ = recovered(disk)
    log.write([batch(1)])
    log.sync()
    log.close(clean=True)
    disk = written([2], disk=disk)
    assert len(segments(disk)) == 2
    assert recovered(disk)[1] == [stored(1), stored(2)]


def test_a_missing_segment_is_named() -> None:
    for gone in (1, 2):
        disk = written([1, 2], [3, 4], [5], segment_bytes=60)
        path = f"{DIRECTORY}/{gone:016d}.segment"
        disk.unlink(path)
        with pytest.raises(StoreCorrupt, match=f"{path}.*missing"):
            recovered(disk)


def test_a_segment_under_another_name_is_refused() -> None:
    disk = written([1])
    disk.replace(FIRST, f"{DIRECTORY}/{2:016d}.segment")
    with pytest.raises(StoreCorrupt, match="another name"):
        recovered(disk)


def test_a_later_format_is_refused_by_its_number() -> None:
    disk = VirtualDisk()
    disk.make_directory(DIRECTORY)
    later = bytearray(pack_header(LOG, 1, 0)[:-4])
    later[8] = 9
    disk.place(FIRST, bytes(later) + zlib.crc32(later).to_bytes(4, "little"))
    with pytest.raises(StoreUnusable, match="format 9"):
        recovered(disk)


def test_foreign_files_are_left_alone_and_leftovers_removed() -> None:
    disk = written([1])
    foreign = ["notes.txt", "1.segment", "0000000000000001.segment.bak", "x0000000000000002.segment"]
    for name in foreign:
        disk.place(f"{DIRECTORY}/{name}", b"mine")
    disk.place(f"{DIRECTORY}/{2:016d}.segment.new", b"half a checkpoint")
    assert recovered(disk)[1] == [stored(1)]
    assert sorted(disk.contents()) == sorted([FIRST, *(f"{DIRECTORY}/{n}" for n in foreign)])


def test_a_copied_frame_inside_a_torn_message_proves_nothing() -> None:
    """A client may publish bytes of any store; only frames of this very segment count."""
    other = VirtualDisk()
    log = open_log(other, salt=8)
    list(log.recover())
    log.write([batch(1)])
    log.sync()
    log.write([batch(2)])
    copied = other.read(FIRST)[HEADER_BYTES:]
    disk = VirtualDisk()
    log, _ = recovered(disk)
    log.write([(Position(1, 1), [b"a" * 10, copied, b"z" * 10])])
    disk.damage(FIRST, HEADER_BYTES + FRAME_HEAD_BYTES)
    log, found = recovered(disk)
    assert found == []
    assert len(log.notices) == 1


def test_a_checkpoint_replaces_all_that_was() -> None:
    disk = written([1], [2], [3], segment_bytes=60)
    log, _ = recovered(disk)
    log.rewrite([(Position(1, 3), payload(77)), (Position(1, 3), payload(78))])
    assert len(segments(disk)) == 1
    log.write([batch(4)])
    log.sync()
    disk.power_loss()
    log, found = recovered(disk)
    assert [b.payload for b in found] == [b"".join(payload(n)) for n in (77, 78, 4)]
    assert [b.position.n for b in found] == [3, 3, 4]


def test_a_checkpoint_of_nothing_still_remembers_the_position() -> None:
    disk = written([1])
    log, _ = recovered(disk)
    log.rewrite([(Position(5, 6), [])])
    assert log.last_position == Position(5, 6)
    log, found = recovered(disk)
    assert [b.position for b in found] == [Position(5, 6)]
    assert log.last_position == Position(5, 6)


def test_a_first_checkpoint_survives_the_power() -> None:
    disk = VirtualDisk()
    log, _ = recovered(disk)
    log.rewrite([batch(4)])
    disk.power_loss()
    assert recovered(disk)[1] == [stored(4)]


def test_a_segment_before_one_in_the_making_was_whole() -> None:
    disk = written([1], [2])
    disk.place(f"{DIRECTORY}/{2:016d}.segment", b"")
    with pytest.raises(StoreCorrupt, match=FIRST):
        recovered(disk)


def test_a_large_checkpoint_is_written_in_pieces() -> None:
    disk = VirtualDisk()
    log, _ = recovered(disk)
    log.rewrite((Position(1, 1), [b"%07d" % i * 100_000]) for i in range(20))
    _, found = recovered(disk)
    assert [b.payload[:7] for b in found] == [b"%07d" % i for i in range(20)]


def test_a_damaged_checkpoint_is_refused_everywhere() -> None:
    whole = VirtualDisk()
    log, _ = recovered(whole)
    log.rewrite([batch(1), batch(2)])
    for offset in range(whole.size(FIRST)):
        disk = copy.deepcopy(whole)
        disk.damage(FIRST, offset, flip=1)
        with pytest.raises(StoreCorrupt):
            recovered(disk)
        disk = copy.deepcopy(whole)
        disk.cut(FIRST, offset)
        if offset > HEADER_BYTES:
            with pytest.raises(StoreCorrupt):
                recovered(disk)


def test_an_emptied_checkpoint_is_not_taken_for_a_segment_in_the_making() -> None:
    disk = written([1])
    log, _ = recovered(disk)
    log.rewrite([batch(1)])
    (checkpoint,) = segments(disk)
    disk.cut(checkpoint, 0)
    with pytest.raises(StoreCorrupt):
        recovered(disk)


def test_misuse_is_refused() -> None:
    log = open_log(VirtualDisk())
    with pytest.raises(StoreMisuse):
        log.write([batch(1)])
    with pytest.raises(StoreMisuse):
        log.rewrite([])
