"""The segment log: recovered batches, cut tails, and refused damage."""

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
    counted,
    open_log,
    payload,
    recovered,
    segments,
    stored,
    written,
)
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

FIRST = f"{DIRECTORY}/{1:016d}.segment"
START = HEADER_BYTES + FRAME_HEAD_BYTES
"""The offset of the first batch in the first segment, whose base is empty."""


def size_of(n: int) -> int:
    return FRAME_HEAD_BYTES + len(b"".join(payload(n)))


def test_an_empty_directory_is_an_empty_log() -> None:
    writer, found = recovered(VirtualDisk())
    assert (found, writer.log.last_position, writer.log.notices) == ([], ORIGIN, [])


def test_batches_come_back_in_order_with_their_positions() -> None:
    writer, found = recovered(written([1], [2, 3], [4]))
    assert found == [stored(n) for n in (1, 2, 3, 4)]
    assert writer.log.last_position == Position(1, 4)
    assert writer.log.notices == []


def test_the_log_goes_on_after_a_restart_and_over_many_segments() -> None:
    disk = written([1], [2], [3], segment_bytes=150)
    disk = written([4], [5, 6], segment_bytes=150, disk=disk)
    _, found = recovered(disk)
    assert found == [stored(n) for n in range(1, 7)]
    assert len(segments(disk)) > 2


def test_a_batch_larger_than_the_reading_window_comes_back() -> None:
    disk = VirtualDisk()
    writer, _ = recovered(disk)
    large = [b"x" * 3_000_000, b"y" * 6_000_000]
    writer.write(batch(1), (Position(1, 2), large), batch(3))
    _, found = recovered(disk)
    assert [b.position.n for b in found] == [1, 2, 3]
    assert found[1].payload == b"".join(large)
    assert found[2] == stored(3)


def test_a_tail_torn_at_any_byte_is_cut_and_the_log_goes_on() -> None:
    whole = written([1], [2], [3])
    size = whole.size(FIRST)
    ends = [START + sum(map(size_of, range(1, n + 1))) for n in range(4)]
    assert ends[-1] == size
    for cut in range(size + 1):
        disk = copy.deepcopy(whole)
        disk.cut(FIRST, cut)
        writer, found = recovered(disk)
        count = sum(end <= cut for end in ends[1:])
        assert found == [stored(n) for n in range(1, count + 1)], cut
        assert len(writer.log.notices) == (cut not in ends)
        writer.write(batch(9))
        disk.power_loss()
        writer, again = recovered(disk)
        assert again == [*found, stored(9)]
        assert writer.log.notices == []


def test_a_last_group_damaged_at_any_byte_is_cut_as_torn() -> None:
    whole = written([1], [2, 3])
    start = START + size_of(1)
    for offset in range(start, whole.size(FIRST)):
        disk = copy.deepcopy(whole)
        disk.damage(FIRST, offset)
        writer, found = recovered(disk)
        expected = [stored(1)] if offset < start + size_of(2) else [stored(1), stored(2)]
        assert found == expected
        assert "nothing of them was confirmed" in writer.log.notices[0]


def test_synced_bytes_damaged_anywhere_are_refused_with_file_and_offset() -> None:
    whole = written([1], [2], [3])
    for offset in range(HEADER_BYTES, START + size_of(1) + size_of(2)):
        disk = copy.deepcopy(whole)
        disk.damage(FIRST, offset)
        before = disk.contents()
        with pytest.raises(StoreCorrupt) as caught:
            recovered(disk)
        assert caught.value.path == FIRST
        frames = (START + size_of(1), START, HEADER_BYTES)
        assert caught.value.offset == next(start for start in frames if start <= offset)
        assert FIRST in str(caught.value) and "\n" not in str(caught.value)
        assert disk.contents() == before


def test_a_damaged_header_is_refused() -> None:
    for offset in range(HEADER_BYTES):
        disk = written([1])
        disk.damage(FIRST, offset)
        with pytest.raises(StoreCorrupt, match="offset 0"):
            recovered(disk)


def test_a_finished_segment_tolerates_no_damage_and_no_cut() -> None:
    left = written([1, 2], [3], segment_bytes=100)
    closed = VirtualDisk()
    writer, _ = recovered(closed)
    writer.write(batch(1), batch(2))
    writer.log.close(clean=True)
    for whole in (left, closed):
        size = whole.size(FIRST)
        for offset in range(START, size):
            disk = copy.deepcopy(whole)
            disk.damage(FIRST, offset, flip=1)
            if whole is left or offset < size - FRAME_HEAD_BYTES:
                with pytest.raises(StoreCorrupt):
                    recovered(disk)
            else:
                assert recovered(disk)[1] == [stored(1), stored(2)]
        disk = copy.deepcopy(left)
        disk.cut(FIRST, START + size_of(1))
        with pytest.raises(StoreCorrupt, match="missing"):
            recovered(disk)


def test_after_a_clean_end_nothing_may_be_missing_however_it_looks() -> None:
    closed = written([1], [2], segment_bytes=60)
    writer, _ = recovered(closed)
    writer.write(batch(3), batch(4))
    writer.log.close(clean=True)
    last = max(segments(closed))
    for size in range(closed.size(last)):
        disk = copy.deepcopy(closed)
        disk.cut(last, size)
        before = disk.contents()
        with pytest.raises(StoreCorrupt, match=last):
            recovered(disk)
        assert disk.contents() == before
    disk = copy.deepcopy(closed)
    disk.unlink(last)
    with pytest.raises(StoreCorrupt, match=f"{last}.*was the newest segment"):
        recovered(disk)
    disk = copy.deepcopy(closed)
    disk.damage(f"{DIRECTORY}/closed.json", 20)
    with pytest.raises(StoreCorrupt, match=r"closed\.json.*if no other file is damaged, remove it"):
        recovered(disk)
    disk.unlink(f"{DIRECTORY}/closed.json")
    assert [b.position.n for b in recovered(disk)[1]] == [1, 2, 3, 4]
    writer, found = recovered(closed)
    assert [b.position.n for b in found] == [1, 2, 3, 4] and len(segments(closed)) == 3
    writer.write(batch(5))
    closed.kill()  # not at a clean end: what was being written may be cut
    closed.cut(max(segments(closed)), START)
    assert len(recovered(closed)[1]) == 4


def test_each_life_begins_a_new_segment() -> None:
    disk = VirtualDisk()
    writer, _ = recovered(disk)
    writer.write(batch(1))
    writer.log.close(clean=True)
    disk = written([2], disk=disk)
    disk = written([3], disk=disk)
    assert len(segments(disk)) == 3
    assert recovered(disk)[1] == [stored(1), stored(2), stored(3)]


def test_a_missing_segment_is_named() -> None:
    for gone in (1, 2):
        disk = written([1, 2], [3, 4], [5], segment_bytes=60)
        path = f"{DIRECTORY}/{gone:016d}.segment"
        disk.unlink(path)
        with pytest.raises(StoreCorrupt, match=f"{path}.*missing"):
            recovered(disk)


def test_segments_that_no_base_leads_to_are_not_taken_for_an_empty_store() -> None:
    disk = written([1], [2], segment_bytes=60)
    disk.unlink(FIRST)
    disk.cut(f"{DIRECTORY}/{2:016d}.segment", HEADER_BYTES)
    before = disk.contents()
    with pytest.raises(StoreCorrupt, match="missing"):
        recovered(disk)
    assert disk.contents() == before


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
    before = disk.contents()
    with pytest.raises(StoreUnusable, match="format 9, and this version reads up to 6"):
        recovered(disk)
    assert disk.contents() == before


def test_foreign_files_are_left_alone_and_leftovers_removed() -> None:
    disk = written([1])
    foreign = ["notes.txt", "1.segment", "0000000000000001.segment.bak", "x0000000000000002.segment"]
    for name in foreign:
        disk.place(f"{DIRECTORY}/{name}", b"mine")
    disk.place(f"{DIRECTORY}/{2:016d}.segment.new", b"half a copy")
    assert recovered(disk)[1] == [stored(1)]
    assert sorted(disk.contents()) == sorted([FIRST, *(f"{DIRECTORY}/{n}" for n in foreign)])


def test_a_copied_frame_inside_a_torn_message_proves_nothing() -> None:
    """A client may publish bytes of any store; only frames of this segment count."""
    other = VirtualDisk()
    writer, _ = recovered(other, salt=8)
    writer.write(batch(1))
    writer.write(batch(2))
    copied = other.read(FIRST)[HEADER_BYTES:]
    disk = VirtualDisk()
    writer, _ = recovered(disk)
    writer.write((Position(1, 1), [b"a" * 10, copied, b"z" * 10]))
    disk.damage(FIRST, START + FRAME_HEAD_BYTES)
    writer, found = recovered(disk)
    assert found == []
    assert len(writer.log.notices) == 1


# -- bases


def test_only_segments_of_the_newest_base_count_and_others_are_removed() -> None:
    disk = written([1], [2], [3], segment_bytes=60)
    log = open_log(disk)
    found = list(log.recover(lambda base: [2]))
    assert [b.position.n for _, b in found] == [2, 3]
    assert [int(path[-24:-8]) for path in segments(disk)] == [2, 3]
    assert log.notices == []


def test_segments_that_no_base_needs_are_removed_while_running() -> None:
    disk = written([1], [2], [3], segment_bytes=60)
    writer, _ = recovered(disk)
    writer.write(batch(4))
    writer.log.retain({2, 4})
    assert [int(path[-24:-8]) for path in segments(disk)] == [2, 4]


def test_a_base_torn_at_any_byte_leaves_the_segments_before_it() -> None:
    whole = written([1], [2], segment_bytes=60)
    second = f"{DIRECTORY}/{2:016d}.segment"
    for cut in range(START + 1):
        disk = copy.deepcopy(whole)
        disk.cut(second, cut)
        writer, found = recovered(disk)
        assert found == [stored(1)], cut
        assert "was being created" in writer.log.notices[0]
        assert segments(disk) == [FIRST]
        writer.write(batch(3))
        assert recovered(disk)[1] == [stored(1), stored(3)]


def test_a_segment_before_one_in_the_making_was_whole() -> None:
    disk = written([1], [2])
    disk.place(f"{DIRECTORY}/{2:016d}.segment", b"")
    with pytest.raises(StoreCorrupt, match=FIRST):
        recovered(disk)


def test_misuse_is_refused() -> None:
    log = open_log(VirtualDisk())
    with pytest.raises(StoreMisuse):
        log.write([batch(1)])
    with pytest.raises(StoreMisuse):
        log.roll(1, ORIGIN, b"")
    list(log.recover(counted))
    log.roll(3, ORIGIN, b"")
    with pytest.raises(StoreMisuse):
        log.roll(3, ORIGIN, b"")
