"""The ids that a queue knows, against a list of all that it took."""

from __future__ import annotations

import random

import pytest

from broker.model.history.recent_ids import LONGEST, MOST, RecentIds, Window, key_of, window_of
from broker.model.history.record_codec import decode_records, encode_record
from broker.model.history.records import IdsNoted, Record
from broker.model.values import Scope
from broker.model.vhost.windows import records_of, take_ids

QUEUE = b"q" * 16


@pytest.mark.parametrize("seed", range(30))
def test_the_newest_ids_are_known_exactly_and_copies_are_equal(seed: int) -> None:
    choice = random.Random(seed)
    window = Window(choice.choice([1, 3, 20, 100]), choice.choice([None, 1, 50, 1000]))
    primary, backup = RecentIds(), RecentIds()
    taken: list[tuple[bytes, int]] = []
    wall = 1000
    for _ in range(60):
        wall += choice.choice([0, 1, 30, 200])
        keys = [
            None if choice.random() < 0.1 else key_of(b"%d" % choice.randrange(choice.choice([4, 200])))
            for _ in range(choice.choice([1, 1, 5, 40]))
        ]
        known = primary.known_in(keys, window, wall)
        expected, fresh = set(), []
        for at, key in enumerate(keys):
            newest = (taken + [(new, wall) for new in fresh])[-window.most :]
            if key is not None and any(
                key == old and (window.ms is None or wall - then < window.ms) for old, then in newest
            ):
                expected.add(at)
            elif key is not None:
                fresh.append(key)
        assert known == expected
        if fresh:
            taken += [(key, wall) for key in fresh]
            floor = primary.floor_after(len(fresh), window, wall)
            record = IdsNoted(QUEUE, primary.next, floor, wall, fresh, Scope.LINK)
            primary.note(primary.next, floor, wall, fresh, stored=choice.random() < 0.7)
            (read,) = decode_records(encode_record(record))
            assert read == record
            backup.note(record.first, record.floor, record.wall_ms, record.keys, stored=False)
        assert len(primary) <= window.most
        assert [key for key, _ in primary.state()[2]] == [key for key, _ in backup.state()[2]]


def test_what_is_told_and_stored_is_read_again() -> None:
    recent = RecentIds()
    for number in range(3):
        keys = [key_of(b"%d/%d" % (number, at)) for at in range(3000)]
        recent.note(recent.next, 100, 10**12 + number, keys, stored=number != 1)
    for told in (recent, recent.after_restart()):
        records: list[Record] = [*records_of(QUEUE, told, Scope.STORE)]
        assert len(records) > 1
        found = None
        for record in decode_records(b"".join(map(encode_record, records))):
            found = take_ids(found, record)  # type: ignore[arg-type]
        assert found is not None and found.state() == told.state()
    assert len(recent.after_restart()) == 6000 - 99
    assert take_ids(recent, records_of(QUEUE, None, Scope.STORE)[0]) is None


def test_an_id_that_came_meanwhile_counts_beside_those_that_are_told() -> None:
    told, live = RecentIds(), RecentIds()
    told.note(1, 1, 5, [key_of(b"a"), key_of(b"b"), key_of(b"c")], stored=True)
    live.note(4, 2, 6, [key_of(b"b"), key_of(b"d")], stored=True)
    both = told.with_newer(live)
    assert [key for key, _ in both.state()[2]] == [key_of(text) for text in (b"c", b"b", b"d")]
    assert (both.next, both.floor) == (6, 2)


@pytest.mark.parametrize(
    ("value", "window"),
    [
        (1, Window(1, None)), ("1", Window(1, None)), (MOST, Window(MOST, None)),
        ("10000/90s", Window(10000, 90_000)), ("5/1ms", Window(5, 1)), ("5/2h", Window(5, 7_200_000)),
        ("5/3650d", Window(5, LONGEST)), ("5/3651d", None), (0, None), (MOST + 1, None), (-1, None),
        ("0", None), ("5/0s", None), ("5/", None), ("5/10", None), ("/10s", None), ("10m", None), ("", None),
        (True, None), (1.5, None), (None, None), ({}, None), ("9" * 5000, None),
        ("5/" + "9" * 5000 + "s", None), ("\u0665", None), ("5\n", None),
    ],
)  # fmt: skip
def test_a_window_is_a_count_alone_or_with_a_time(value: object, window: Window | None) -> None:
    assert window_of(value) == window
