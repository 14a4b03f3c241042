"""Sections before the body that are converted without decoding, because some of the same shape were before.

A client's messages usually have the same sections, fields and application properties, in the same order and
of the same types. Only their values differ. A `HeadShape` is the sequence of the octets that all of these
heads share, of the kinds of values between them, and of the octets of the resulting 0-9-1 property list.

Why a match is as good as `to_091.converted`: descriptors, counts, keys and types are compared with those of a
head that was converted, so they are valid, and no key occurs twice. Values are checked as the decoder checks
them: strings are UTF-8, and each section ends where its size says. A value whose conversion depends on more
than its type (a time before 1970, an unsigned long that no 0-9-1 field holds) does not match. Header and
annotations, the user id and symbols are compared too, so a head that matches has the same `Checked`.

Owner: `Links`, which has the `HeadShapes` of its connection. No I/O.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker.amqp091.codec.properties import (
    DELIVERY_MODE,
    HEADERS,
    PRIORITY,
    TIMESTAMP,
    Checked,
    entries_of,
)  # fmt: skip
from broker.amqp10.to_091 import APP_ID, CORRELATION_ID, MESSAGE_ID, REPLY_TO, Converted, uuid_text
from understudy.shared.amqp10.decoder import skip
from understudy.shared.amqp10.sections import APPLICATION_PROPERTIES, PROPERTIES

KEPT = 8
"""Shapes of one connection: a client that publishes more kinds of messages has some of them decoded."""
_LONGEST = 2048
_MOST_VALUES = 64
"""Maximum octets of a head, and values in it, that a shape is learned from: shapes are kept in memory."""
_LONGEST_MATCH = 8192
"""Maximum octets of a head that matches: its headers cannot exceed `to_091.MOST_HEADERS`."""
_SHAPE, _STEP = 1000, 300
"""Approximate octets of a shape, and of each value in it besides what is shared."""
_PATIENCE = 1024
"""Most heads without a shape after which the next one is learned."""

_NOTHING, _STRING, _BINARY, _SIZE, _END, _OCTETS, _CODED = range(7)
"""What follows shared octets: nothing; a string or a binary with its length in one octet; the size of a
section; the end of a section; octets that are copied; a value with its format code."""

_NOWHERE, _TO, _SUBJECT = -1, -2, -3
"""Places of values that the property list does not have. They are pieces behind its own."""
_OTHERS = 3


class _Value(NamedTuple):
    """A value in a head: its start and end, its kind, and its place in the property list. `about`: the number
    of octets that are copied or hold a size, or the kind of a value with its format code."""

    start: int
    stop: int
    kind: int
    about: int = 0
    place: int = _NOWHERE
    place_end: int = 0


_STRING_FIELDS = {
    0: MESSAGE_ID,
    2: _TO,
    3: _SUBJECT,
    4: REPLY_TO,
    5: CORRELATION_ID,
    10: APP_ID,
    12: _NOWHERE,
}
_ID_FIELDS = (0, 5)
_TIME_FIELDS = {8: _NOWHERE, 9: TIMESTAMP}
"""Fields of the section properties that may differ, and the property of each."""

_SMALL: dict[int, list[bytes]] = {
    0x54: [b"I" + struct.pack(">i", (n ^ 0x80) - 0x80) for n in range(256)],
    0x55: [b"l" + struct.pack(">q", (n ^ 0x80) - 0x80) for n in range(256)],
    0x52: [b"i" + struct.pack(">I", n) for n in range(256)],
    0x53: [b"l" + struct.pack(">q", n) for n in range(256)],
    0x56: [b"t\0", b"t\1"],
}
"""Fields of the values in one octet, by format code."""
_ALONE = {0x41: b"t\1", 0x42: b"t\0", 0x43: _SMALL[0x52][0], 0x44: _SMALL[0x53][0]}
_WIDE = {0x71: (b"I", 4), 0x70: (b"i", 4), 0x81: (b"l", 8), 0x80: (b"l", 8)}
_INT, _LONG, _UINT, _ULONG, _BOOL, _TIME, _UUID, _TIMESTAMP, _UUID_ID, _ULONG_ID = range(10, 20)
"""Kinds of values with a format code."""
_CODES = {
    _INT: b"\x54\x71", _LONG: b"\x55\x81", _UINT: b"\x43\x52\x70", _ULONG: b"\x44\x53\x80",
    _BOOL: b"\x41\x42\x56", _TIME: b"\x83", _UUID: b"\x98", _TIMESTAMP: b"\x83", _UUID_ID: b"\x98",
    _ULONG_ID: b"\x44\x53\x80",
}  # fmt: skip
_KIND_OF = {code: kind for kind in (_INT, _LONG, _UINT, _ULONG, _BOOL, _TIME, _UUID) for code in _CODES[kind]}
_COPIED = {0x50: 1, 0x51: 1, 0x60: 2, 0x61: 2, 0x82: 8}
"""Octets of the values that are the same in both protocols: bytes, shorts, doubles."""


class Matched(NamedTuple):
    """What `to_091.converted` returns for a head, and where its body begins."""

    properties: bytes
    kind: Checked
    to: str | None
    subject: str | None
    user_id: bytes | None
    kept: int
    """Start of the sections that are stored."""
    body: int


def _coded(data: bytes, at: int, kind: int) -> tuple[bytes, int]:
    """The field of the value at `at`, and the next offset; (b"", 0) if it does not match."""
    code = data[at]
    if code not in _CODES[kind]:
        return b"", 0
    if kind >= _TIME:
        return _coded_rarely(data, at, kind)
    small = _SMALL.get(code)
    if small is not None:
        number = data[at + 1]
        return (small[number], at + 2) if number < len(small) else (b"", 0)
    wide = _WIDE.get(code)
    if wide is None:
        return _ALONE[code], at + 1
    tag, width = wide
    if code == 0x80 and data[at + 1] > 0x7F:
        return b"", 0
    return tag + data[at + 1 : at + 1 + width], at + 1 + width


def _coded_rarely(data: bytes, at: int, kind: int) -> tuple[bytes, int]:
    if kind in (_UUID, _UUID_ID):
        text = uuid_text(data[at + 1 : at + 17]).encode()
        return (b"S\0\0\0\x2d" if kind == _UUID else b"\x2d") + text, at + 17
    if kind == _ULONG_ID:
        width = {0x44: 0, 0x53: 1, 0x80: 8}[data[at]]
        text = b"%d" % int.from_bytes(data[at + 1 : at + 1 + width], "big")
        return bytes((len(text),)) + text, at + 1 + width
    if data[at + 1] > 0x7F:
        return b"", 0
    seconds = (int.from_bytes(data[at + 1 : at + 9], "big") // 1000).to_bytes(8, "big")
    return (b"T" + seconds if kind == _TIME else seconds), at + 9


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


class HeadShape:
    """Heads with the same octets apart from some values."""

    __slots__ = (
        "_before_table", "_has_subject", "_has_to", "_kept", "_kind", "_pieces", "_steps", "_table",
        "_user_id", "key",
    )  # fmt: skip

    def __init__(self, head: bytes, values: list[_Value], made: Converted) -> None:
        """`made`: what `converted` returns for `head`; what may vary in it is `values`."""
        listed = made.properties
        start, end = _places(listed).get(HEADERS, (0, 0))
        self._before_table = listed[:start] if end else b""
        self._pieces: list[bytes] = []
        """The parts of the property list behind the length of its table, and a place for other values."""
        self._table = 0
        """How many of them are the table's."""
        holes: dict[int, int] = {}
        at = start + 4 if end else 0
        for place, place_end, number in _cuts(values, end, len(listed)):
            if number < 0:
                self._pieces.append(listed[at:place])
            else:
                holes[number] = len(self._pieces) + 1
                self._pieces += [listed[at:place], listed[place:place_end]]
            at = place_end
            if place == end and number < 0:
                self._table = len(self._pieces)
        self._pieces += [b""] * _OTHERS
        self._kind, self._user_id = made.kind, made.user_id
        self._kept = len(head) - len(made.kept)
        self._has_to, self._has_subject = made.to is not None, made.subject is not None
        self._steps: list[tuple[bytes, int, int, int, int]] = []
        """Shared octets, their number, what follows, its piece, and what `_Value` has about it."""
        at = 0
        for number, value in enumerate(values):
            shared = head[at : value.start]
            hole = holes.get(number, value.place)
            self._steps.append((shared, len(shared), value.kind, hole, value.about))
            at = value.stop
        self._steps.append((head[at:], len(head) - at, _NOTHING, _NOWHERE, 0))
        self.key = b"".join([step[0] for step in self._steps])

    @property
    def octets(self) -> int:
        """Approximate size in memory."""
        pieces = sum([len(piece) for piece in self._pieces])
        return _SHAPE + pieces + 2 * len(self.key) + _STEP * len(self._steps)

    def match(self, data: bytes) -> Matched | None:
        """Convert the head of `data`, a whole message; None if it is of another shape."""
        try:
            return self._match(data)
        except IndexError:
            return None

    def _match(self, data: bytes) -> Matched | None:
        at = end = 0
        pieces = self._pieces[:]
        startswith = data.startswith
        for shared, size, then, hole, about in self._steps:
            if not startswith(shared, at):
                return None
            at += size
            if then == _STRING:
                begin, at = at, at + 1 + data[at]
                pieces[hole] = piece = data[begin:at]
                if not piece.isascii() and not _is_text(piece[1:]):
                    return None
            elif then == _CODED:
                pieces[hole], at = _coded(data, at, about)
                if not at:
                    return None
            elif then == _END:
                if at != end:
                    return None
            elif then == _SIZE:
                end = at + about + int.from_bytes(data[at : at + about], "big")
                at += about
            elif then == _OCTETS:
                pieces[hole] = data[at : at + about]
                at += about
            elif then == _BINARY:
                begin, at = at, at + 1 + data[at]
                pieces[hole] = data[begin:at]
        return self._matched(pieces, at) if at <= _LONGEST_MATCH else None

    def _matched(self, pieces: list[bytes], at: int) -> Matched:
        to = pieces[_TO][1:].decode() if self._has_to else None
        subject = pieces[_SUBJECT][1:].decode() if self._has_subject else None
        table, listed = self._table, len(pieces) - _OTHERS
        properties = b"".join(pieces[table:listed])
        if table:
            entries = b"".join(pieces[:table])
            size = len(entries).to_bytes(4, "big")
            properties = b"%b%b%b%b" % (self._before_table, size, entries, properties)
        return Matched(properties, self._kind, to, subject, self._user_id, self._kept, at)


class HeadShapes:
    """The shapes of one connection's latest messages."""

    __slots__ = ("_known", "_latest", "_patience", "_unlike")

    def __init__(self) -> None:
        self._known: dict[bytes, HeadShape] = {}
        """By the octets that the heads share. Oldest first."""
        self._latest: HeadShape | None = None
        self._unlike = 0
        """Heads since a shape was learned that matched none."""
        self._patience = 0
        """As many of them are not learned from. So heads that are all different cost little more."""

    @property
    def octets(self) -> int:
        """Approximate size in memory."""
        return sum([shape.octets for shape in self._known.values()])

    def find(self, data: bytes) -> Matched | None:
        """Convert the head of a whole message; None if it matches no shape."""
        latest = self._latest
        if latest is None:
            return None
        found = latest.match(data)
        if found is None:
            for shape in self._known.values():
                if shape is latest:
                    continue
                found = shape.match(data)
                if found is not None:
                    self._latest = shape
                    break
            else:
                return None
        self._patience = 0
        return found

    def learn(self, payload: bytes, body: int, made: Converted) -> None:
        """The head of `payload`, up to `body`, matched no shape. `converted` returned `made` for it."""
        self._unlike += 1
        if self._unlike <= self._patience or body > _LONGEST:
            return
        self._unlike, self._patience = 0, min(_PATIENCE, 2 * self._patience + 1)
        values = _values(payload, body, made.properties)
        if values is None or len(values) > _MOST_VALUES:
            return
        shape = HeadShape(payload[:body], values, made)
        found = shape.match(payload)
        if found is None or found.properties != made.properties or found.body != body:
            return
        self._known.pop(shape.key, None)
        self._known[shape.key] = self._latest = shape
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]


_BITS = tuple(1 << bit for bit in range(15, 1, -1))


def _cuts(values: list[_Value], table_end: int, size: int) -> list[tuple[int, int, int]]:
    """Start and end of the places in the property list, in order, with the number of each value; without one
    the ends of the table and of the list."""
    cuts = [(value.place, value.place_end, n) for n, value in enumerate(values) if value.place >= 0]
    if table_end:
        cuts.append((table_end, table_end, -1))
    cuts.append((size, size, -2))
    return sorted(cuts, key=lambda cut: (cut[0], cut[2] >= 0))


def _places(listed: bytes) -> dict[int, tuple[int, int]]:
    """Start and end of each property, by its flag."""
    flags, at = listed[0] << 8 | listed[1], 2
    places: dict[int, tuple[int, int]] = {}
    for bit in _BITS:
        if not flags & bit:
            continue
        start = at
        if bit == HEADERS:
            at += 4 + int.from_bytes(listed[at : at + 4], "big")
        elif bit in (DELIVERY_MODE, PRIORITY):
            at += 1
        elif bit == TIMESTAMP:
            at += 8
        else:
            at += 1 + listed[at]
        places[bit] = start, at
    return places


def _values(head: bytes, body: int, listed: bytes) -> list[_Value] | None:
    """What may vary in a valid head, which ends at `body`, and was converted to `listed`. None if the head is
    written in a way that no shape covers."""
    places = _places(listed)
    values: list[_Value] = []
    at = 0
    while at < body:
        if head[at : at + 2] != b"\0\x53":
            return None
        code, form = head[at + 2], head[at + 3]
        stop = skip(head, at + 3, body)
        if code in (PROPERTIES, APPLICATION_PROPERTIES) and form != 0x45:
            width = 4 if form & 0x10 else 1
            values.append(_Value(at + 4, at + 4 + width, _SIZE, width))
            start = at + 4 + 2 * width
            if code == PROPERTIES:
                _property_values(head, start, stop, places, values)
            else:
                _header_values(head, start, stop, _fields(listed, *places.get(HEADERS, (0, 0))), values)
            values.append(_Value(stop, stop, _END))
        at = stop
    return values


def _property_values(
    head: bytes, at: int, stop: int, places: dict[int, tuple[int, int]], values: list[_Value]
) -> None:
    number = 0
    while at < stop:
        code, after = head[at], skip(head, at, stop)
        if code == 0xA1 and number in _STRING_FIELDS:
            bit = _STRING_FIELDS[number]
            place, end = places[bit] if bit > 0 else (bit, 0)
            values.append(_Value(at + 1, after, _STRING, 0, place, end))
        elif code == 0x83 and number in _TIME_FIELDS:
            bit = _TIME_FIELDS[number]
            place, end = places.get(bit, (_NOWHERE, 0))
            values.append(_Value(at, after, _CODED, _TIMESTAMP, place, end))
        elif number in _ID_FIELDS and code in _CODES[_ULONG_ID]:
            values.append(_Value(at, after, _CODED, _ULONG_ID, *places[_STRING_FIELDS[number]]))
        elif number in _ID_FIELDS and code == 0x98:
            values.append(_Value(at, after, _CODED, _UUID_ID, *places[_STRING_FIELDS[number]]))
        number, at = number + 1, after


def _fields(listed: bytes, start: int, end: int) -> dict[bytes, tuple[int, int]]:
    """Start and end of each field of the table, its type included, by its key."""
    fields: dict[bytes, tuple[int, int]] = {}
    if end:
        for _, _, begin, stop in entries_of(listed, start, end):
            at = begin + 1 + listed[begin]
            fields[listed[begin + 1 : at]] = at, stop
    return fields


def _header_values(
    head: bytes, at: int, stop: int, fields: dict[bytes, tuple[int, int]], values: list[_Value]
) -> None:
    """Keys x-* may be those of annotations, too, so their values are among what is shared."""
    while at < stop:
        key = head[at + 2 : at + 2 + head[at + 1]] if head[at] == 0xA1 else b"x-"
        at = skip(head, at, stop)
        code, after = head[at], skip(head, at, stop)
        if not key.startswith(b"x-"):
            place, end = fields.get(key, (_NOWHERE, 0))
            tag = min(place, 0)  # what is shared has the type of a field, but not of a value with a code
            if code == 0xA1 or code == 0xA0:
                kind = _STRING if code == 0xA1 else _BINARY
                values.append(_Value(at + 1, after, kind, 0, place + 4 if not tag else place, end))
            elif code in _COPIED:
                values.append(
                    _Value(at + 1, after, _OCTETS, _COPIED[code], place + 1 if not tag else place, end)
                )
            elif code in _KIND_OF:
                values.append(_Value(at, after, _CODED, _KIND_OF[code], place, end))
        at = after
