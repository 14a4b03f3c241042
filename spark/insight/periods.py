"""Chooses the time slots of a report, so that an hour and a month are both readable. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
SLOTS = (SECOND_US, 10 * SECOND_US, MINUTE_US, 5 * MINUTE_US, 15 * MINUTE_US, HOUR_US, 6 * HOUR_US, DAY_US)
ROWS = (MINUTE_US, 15 * MINUTE_US, HOUR_US, 6 * HOUR_US, DAY_US, 7 * DAY_US, 28 * DAY_US)
MOST_SLOTS, MOST_ROWS = 750, 32


@dataclass(slots=True, frozen=True)
class Period:
    """[since, until) in microseconds. Slots are for charts, rows for tables; both begin at multiples of their
    width."""

    since_us: int
    until_us: int
    slot_us: int
    row_us: int

    def slots(self, width_us: int) -> range:
        """Numbers of the slots (or rows) of this width that the period touches."""
        return range(self.since_us // width_us, -(-self.until_us // width_us))


def choose(since_us: int, until_us: int) -> Period:
    """The finest slots and rows within MOST_SLOTS and MOST_ROWS."""
    length = max(until_us - since_us, 1)

    def finest(widths: tuple[int, ...], most: int) -> int:
        return next((width for width in widths if length <= width * most), widths[-1])

    slot = finest(SLOTS, MOST_SLOTS)
    row = max(finest(ROWS, MOST_ROWS), slot)
    return Period(since_us, until_us, slot, row)
