"""Property lists that are checked without decoding, because one of the same shape was checked before.

A client's messages usually have the same properties and the same headers, in the same order and of the same
types. Only their values differ. A `Shape` is the sequence of the octets that all of these lists share, and of
the kinds of values between them.

Why a match is as good as `properties.check`: property flags, header names, types and nesting are compared
with those of a checked list, so they are valid and no name occurs twice. A value is valid whatever its octets
are, as long as it ends before its table does. The values that the broker itself needs (see `Checked`) are
compared too, so a list that matches has the same `Checked`. Routing keys in `CC` and `BCC` may differ; their
number may not.

The length of a string is one of the compared octets until two lists differ in it, because comparing a length
costs less than reading it. A stretch in which no length differs is compared at once, however many values are
in it: as one large number, without the octets of the values.

Owner: `Publisher`, which has the `Shapes` of its connection. No I/O.
"""

from __future__ import annotations

from broker.amqp091.codec.fields import FIXED_SIZES
from broker.amqp091.codec.properties import (
    DELIVERY_MODE,
    DIRECT_REPLY,
    EXPIRATION,
    HEADERS,
    PRIORITY,
    REPLY,
    TIMESTAMP,
    USER_ID,
    Checked,
)

KEPT = 4
"""Shapes of one connection: a client that publishes more kinds of messages has some of them checked whole."""
_LONGEST = 2048
_MOST_VALUES = 64
"""Maximum octets of a list, and values in it, that a shape is learned from: shapes are kept in memory."""
_SHAPE, _STEP, _COPIES = 600, 250, 3
"""Approximate octets of a shape, and of each step of a comparison; and how often this has the octets."""
_PATIENCE = 1024
"""Most lists without a shape after which the next one is learned."""

_FIXED, _SHORT, _LONG, _BEGIN, _END, _REPLY_TO = range(6)
"""What follows shared octets: a value of known size; a short string; a long string; a table or an array; the
end of one; a short string other than `DIRECT_REPLY`."""
_BITS = tuple(1 << n for n in range(15, 1, -1))


class Shape:
    """`kind`: what the broker itself needs from each list of this shape."""

    __slots__ = ("_lengths", "_loose", "_steps", "kind")

    def __init__(self, data: bytes, kind: Checked, values: list[_Value], before: Shape | None) -> None:
        """`data`: a whole property list, for which `check` returned `kind`. `values`: those in it. `before`:
        the shape that differs from it in the lengths of strings at most."""
        self.kind: Checked = kind
        self._steps: list[tuple[int, int, bytes, int, int]] = []
        """A mask of the shared octets, 0 if these are all at the start; what they are, as a number and as
        octets; the offset of what follows them and the values among them; what that is."""
        self._lengths: list[int] = [end - start for _, start, end, _ in values]
        self._loose: list[bool] = [
            before is not None and (before._loose[n] or before._lengths[n] != length)
            for n, length in enumerate(self._lengths)
        ]
        nested = True in self._loose  # otherwise the lengths of tables are shared octets, too
        begin = 0
        known: list[tuple[int, int]] = []
        for (at, start, end, then), loose in zip(values, self._loose, strict=True):
            if (
                then == _FIXED
                or (then in (_SHORT, _LONG) and not loose)
                or (then == _REPLY_TO and not loose and end - at != len(DIRECT_REPLY))
            ):
                known.append((start, end))
            elif nested or then == _REPLY_TO:
                self._step(data, begin, at, known, then)
                begin, known = end, []
        self._step(data, begin, len(data), known, _FIXED)

    def _step(self, data: bytes, begin: int, end: int, known: list[tuple[int, int]], then: int) -> None:
        """Add what is between `begin` and `end`. `known`: the values there, whose sizes do not change."""
        mask, shared = 0, data[begin:end]
        if known and known[0][1] == end:
            shared = data[begin : known[0][0]]
        elif known:
            octets = bytearray(b"\xff" * (end - begin))
            for start, stop in known:
                octets[start - begin : stop - begin] = bytes(stop - start)
            mask = int.from_bytes(octets, "little")
        self._steps.append((mask, int.from_bytes(shared, "little") & mask, shared, end - begin, then))

    @property
    def octets(self) -> int:
        """Approximate size in memory."""
        return _SHAPE + sum([_STEP + _COPIES * size for _, _, _, size, _ in self._steps])

    def has(self, values: int) -> bool:
        """Whether this is the number of values in its lists."""
        return len(self._lengths) == values

    def matches(self, data: bytes, at: int, end: int) -> bool:
        """Whether the octets from `at` to `end` are a valid property list of this shape."""
        table_end = 0
        outer: list[int] = []
        startswith = data.startswith
        for mask, masked, shared, size, then in self._steps:
            if mask:
                if int.from_bytes(data[at : at + size], "little") & mask != masked:
                    return False
            elif not startswith(shared, at):
                return False
            at += size
            if not then:
                continue
            if then == _END:
                if at != table_end:
                    return False
                table_end = outer.pop()
            elif then == _SHORT:
                if at >= end:
                    return False
                at += 1 + data[at]
            elif then == _REPLY_TO:
                if at >= end or startswith(DIRECT_REPLY, at):
                    return False
                at += 1 + data[at]
            else:
                if at + 4 > end:
                    return False
                length = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
                at += 4
                if then == _LONG:
                    at += length
                else:
                    outer.append(table_end)
                    table_end = at + length
        return at == end


class Shapes:
    """The shapes of one connection's latest property lists. `latest`: the one that matched last."""

    __slots__ = ("_known", "_patience", "_unlike", "latest")

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}
        """By the octets that the lists share whatever the lengths of their strings. Oldest first."""
        self.latest: Shape | None = None
        self._unlike = 0
        """Lists since a shape was learned that matched none."""
        self._patience = 0
        """As many of them are not learned from. So lists that are all different cost little more."""

    @property
    def octets(self) -> int:
        """Approximate size in memory."""
        return sum([shape.octets + len(key) for key, shape in self._known.items()])

    def find(self, data: bytes, at: int, end: int) -> Checked | None:
        """What `check` returns for the octets from `at` to `end`; None if they match no shape."""
        latest = self.latest
        if latest is None:
            return None
        if not latest.matches(data, at, end):
            for shape in self._known.values():
                if shape is not latest and shape.matches(data, at, end):
                    break
            else:
                return None
            self.latest = latest = shape
        self._patience = 0
        return latest.kind

    def learn(self, data: bytes, kind: Checked) -> None:
        """`data` matched no shape, and `check` returned `kind` for it."""
        self._unlike += 1
        if self._unlike <= self._patience or len(data) > _LONGEST:
            return
        self._unlike, self._patience = 0, min(_PATIENCE, 2 * self._patience + 1)
        values = _values(data)
        if len(values) > _MOST_VALUES:
            return
        begin, parts = 0, []
        for at, _, end, _ in values:
            parts.append(data[begin:at])
            begin = end
        key = b"".join((*parts, data[begin:]))
        before = self._known.pop(key, None)
        if before is not None and not before.has(len(values)):
            before = None
        self.latest = Shape(data, kind, values, before)
        self._known[key] = self.latest
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]


_Value = tuple[int, int, int, int]
"""What is not shared: its place (of its length, if it has one), its start, its end, and its kind."""


def _values(data: bytes) -> list[_Value]:
    """Those of a valid property list."""
    values: list[_Value] = []
    flags = data[0] << 8 | data[1]
    at = 2
    for bit in _BITS:
        if not flags & bit:
            continue
        if bit == HEADERS:
            at = _nested(data, at, True, values)
        elif bit in (DELIVERY_MODE, PRIORITY):
            at += 1
        elif bit in (USER_ID, EXPIRATION) or (bit == REPLY and data.startswith(DIRECT_REPLY, at)):
            at += 1 + data[at]
        elif bit == TIMESTAMP:
            values.append((at, at, at + 8, _FIXED))
            at += 8
        else:
            start, at = at, at + 1 + data[at]
            values.append((start, start + 1, at, _REPLY_TO if bit == REPLY else _SHORT))
    return values


def _nested(data: bytes, at: int, named: bool, values: list[_Value]) -> int:
    """Append those of a table, or of an array, which has no names. Return its end."""
    length = int.from_bytes(data[at : at + 4], "big")
    values.append((at, at + 4, at + 4, _BEGIN))
    at += 4
    end = at + length
    while at < end:
        if named:
            at += 1 + data[at]
        tag = data[at]
        at += 1
        size = FIXED_SIZES.get(tag)
        if size is not None:
            if size:
                values.append((at, at, at + size, _FIXED))
            at += size
        elif tag in b"Sx":
            start, at = at, at + 4 + int.from_bytes(data[at : at + 4], "big")
            values.append((start, start + 4, at, _LONG))
        else:
            at = _nested(data, at, tag == 0x46, values)
    values.append((end, end, end, _END))
    return end
