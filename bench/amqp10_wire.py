"""Just enough AMQP 1.0 for the load generator: a connection with one session and one link, and transfers.

Shares no code with the broker and none with Proton. bench/wire.py is the same of AMQP 0-9-1; the measured
loop, in load.c, then owns the socket. Called by bench/generator.py.
"""

from __future__ import annotations

import random
import socket
import struct
import uuid
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import exp, log

from bench.messages import COPIES, DISTINCT, MIXED, Ring, celery_texts, content
from bench.wire import WireError

AMQP, SASL = b"AMQP\0\1\0\0", b"AMQP\3\1\0\0"
OPEN, BEGIN, ATTACH, FLOW, CLOSE = 0x10, 0x11, 0x12, 0x13, 0x18
MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
SOURCE, TARGET = 0x28, 0x29
HEADER, PROPERTIES, APPLICATION_PROPERTIES, DATA = 0x70, 0x73, 0x74, 0x75
NULL, TRUE, FALSE, ZERO = b"\x40", b"\x41", b"\x42", b"\x43"
FRAME_MAX = 131072
MOST = 0x7FFFFFFF
"""Transfers that the session's windows permit."""


def uint(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


def text(value: str) -> bytes:
    """A string."""
    return _variable(0xA1, value.encode())


def symbol(value: str) -> bytes:
    return _variable(0xA3, value.encode())


def binary(value: bytes) -> bytes:
    return _variable(0xA0, value)


def _variable(code: int, octets: bytes) -> bytes:
    if len(octets) < 255:
        return bytes([code, len(octets)]) + octets
    return bytes([code + 0x10]) + struct.pack(">I", len(octets)) + octets


def compound(code: int, items: list[bytes]) -> bytes:
    """`code` of the short form: 0xC0 for a list, 0xC1 for a map."""
    inner = b"".join(items)
    if len(inner) < 255 and len(items) < 256:
        return bytes([code, len(inner) + 1, len(items)]) + inner
    return bytes([code + 0x10]) + struct.pack(">II", len(inner) + 4, len(items)) + inner


def described(code: int, value: bytes) -> bytes:
    return bytes([0, 0x53, code]) + value


def performative(code: int, *items: bytes) -> bytes:
    return described(code, compound(0xC0, list(items)))


def frame(body: bytes, kind: int = 0) -> bytes:
    """On channel 0. `kind`: 0 of AMQP, 1 of SASL."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body


@dataclass(slots=True)
class Link:
    """One connection with a sender or a receiver, opened blockingly."""

    socket: socket.socket
    credit: int = 0
    """Transfers that the broker permits on the link so far."""
    session_credit: int = 0
    """The same of the session's window."""
    held: bytearray = field(default_factory=bytearray)

    @classmethod
    def sender(cls, host: str, port: int, address: str, *, user: str, password: str) -> Link:
        """Raises WireError or OSError."""
        link = cls._session(host, port, user, password)
        target = performative(TARGET, text(address))
        link.send(ATTACH, text("sender"), ZERO, FALSE, b"\x50\0", b"\x50\0", performative(SOURCE), target,
                  NULL, NULL, ZERO)  # fmt: skip
        link.expect(ATTACH)
        while not link.credit:
            link.flow(link.expect(FLOW))
        return link

    @classmethod
    def receiver(cls, host: str, port: int, address: str, credit: int, *, user: str, password: str) -> Link:
        """Raises WireError or OSError."""
        link = cls._session(host, port, user, password)
        source = performative(SOURCE, text(address))
        link.send(ATTACH, text("receiver"), ZERO, TRUE, b"\x50\0", b"\x50\0", source, performative(TARGET))
        link.expect(ATTACH)
        link.send(FLOW, ZERO, uint(MOST), ZERO, uint(MOST), ZERO, ZERO, uint(credit))
        return link

    @classmethod
    def _session(cls, host: str, port: int, user: str, password: str) -> Link:
        connected = socket.create_connection((host, port), 20)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(connected)
        connected.sendall(SASL)
        link.expect_header(SASL)
        link.expect(MECHANISMS)
        response = binary(f"\0{user}\0{password}".encode())
        connected.sendall(frame(performative(SASL_INIT, symbol("PLAIN"), response), 1))
        if link.expect(SASL_OUTCOME)[:1] != [0]:
            raise WireError("the login was refused")
        connected.sendall(AMQP)
        link.expect_header(AMQP)
        link.send(OPEN, text(f"bench-{uuid.uuid4().hex[:12]}"), text("vhost:/"), uint(FRAME_MAX))
        link.send(BEGIN, NULL, ZERO, uint(MOST), uint(MOST))
        link.expect(OPEN)
        begin = link.expect(BEGIN)
        link.session_credit = begin[2] or 0
        return link

    def send(self, code: int, *items: bytes) -> None:
        self.socket.sendall(frame(performative(code, *items)))

    def flow(self, fields: list[int | None]) -> None:
        """Take the broker's windows and credit."""
        self.session_credit = (fields[0] or 0) + (fields[1] or 0)
        if len(fields) > 6 and fields[4] is not None:
            self.credit = (fields[5] or 0) + (fields[6] or 0)

    def expect_header(self, wanted: bytes) -> None:
        self.fill(8)
        if self.held[:8] != wanted:
            raise WireError(f"the broker does not speak AMQP 1.0: {bytes(self.held[:8])!r}")
        del self.held[:8]

    def expect(self, wanted: int) -> list[int | None]:
        """The numbers of the next performative that is not a flow, or of the next flow if that is wanted."""
        while True:
            self.fill(8)
            size = struct.unpack_from(">I", self.held)[0]
            self.fill(size)
            payload = bytes(self.held[4 * self.held[4] : size])
            del self.held[:size]
            if not payload:
                continue  # a heartbeat
            code = payload[2]
            if code == FLOW:
                fields = list(numbers(payload[3:]))
                if wanted == FLOW:
                    return fields
                self.flow(fields)
            elif code == wanted:
                return list(numbers(payload[3:]))
            else:
                said = "".join(chr(octet) if 31 < octet < 127 else " " for octet in payload[3:])
                raise WireError(f"expected performative {wanted:#x}, got {code:#x}: {' '.join(said.split())}")

    def fill(self, size: int) -> None:
        """Read until `size` bytes are held."""
        while len(self.held) < size:
            got = self.socket.recv(65536)
            if not got:
                raise WireError("the broker closed the connection")
            self.held += got

    def close(self) -> None:
        """A close, waiting for no more than the end of the connection."""
        try:
            self.socket.settimeout(5)
            self.send(CLOSE)
            while self.socket.recv(65536):
                pass
        except OSError:
            pass  # it is gone, which is all that was wanted
        finally:
            self.socket.close()


def numbers(octets: bytes) -> Iterator[int | None]:
    """The values of a list; None for those that are neither numbers nor truth values."""
    kind = octets[0]
    if kind == 0x45:
        return
    end, at = (2 + octets[1], 3) if kind == 0xC0 else (5 + struct.unpack_from(">I", octets, 1)[0], 9)
    while at < end:
        code, wide = octets[at], (0, 1, 2, 4, 8, 16)[max(0, min(5, (octets[at] >> 4) - 4))]
        at += 1
        if code == 0:  # described: the descriptor, then the value
            at += 2
            continue
        if code >= 0xA0:
            counted = 1 if code < 0xB0 or 0xC0 <= code < 0xD0 or 0xE0 <= code < 0xF0 else 4
            at += counted + int.from_bytes(octets[at : at + counted])
            yield None
            continue
        fixed = {0x41: 1, 0x42: 0, 0x43: 0, 0x44: 0}
        yield fixed.get(code) if not wide else int.from_bytes(octets[at : at + wide])
        at += wide


# -- messages


@dataclass(slots=True)
class Transfers:
    """What load.c must know of each message besides where it ends."""

    ring: Ring
    bodies: array[int]
    """Where each body begins."""
    bare: array[int]
    """Where each bare message begins."""


def alike(size: int, *, persistent: bool) -> Transfers:
    """Equal messages, with a content-type: RabbitMQ makes properties up for messages that have none."""
    properties = performative(PROPERTIES, *[NULL] * 6, symbol("application/octet-stream"))
    one = header(persistent), properties, content(size)
    return _transfers(lambda _: one, max(1, COPIES // (size + 90)))


def mix(*, persistent: bool, seed: int, count: int = DISTINCT) -> Transfers:
    """Messages as bench/messages.py has them: the ids and headers of Celery as application properties."""
    randomly, body = random.Random(seed), content(MIXED[1])

    def made(_: int) -> tuple[bytes, bytes, bytes]:
        task, root = (str(uuid.UUID(int=randomly.getrandbits(128), version=4)) for _ in range(2))
        size = round(exp(randomly.uniform(log(MIXED[0]), log(MIXED[1]))))
        properties = [NULL, NULL, NULL, NULL, NULL, text(task), symbol("application/json")]
        pairs = [text(each) for pair in celery_texts(task, root).items() for each in pair]
        pairs += [text("eta"), NULL, text("expires"), NULL, text("retries"), b"\x71\0\0\0\0"]
        sections = performative(PROPERTIES, *properties)
        sections += described(APPLICATION_PROPERTIES, compound(0xC1, pairs))
        return header(persistent), sections, body[:size]

    return _transfers(made, count)


def header(persistent: bool) -> bytes:
    return performative(HEADER, TRUE if persistent else FALSE)


def _transfers(made: Callable[[int], tuple[bytes, bytes, bytes]], count: int) -> Transfers:
    """Delivery id and tag are at the offsets that load.c has as TRANSFER_ID and TRANSFER_TAG."""
    bodies, bare, messages, end = array("Q"), array("Q"), [], 0
    start = performative(0x14, ZERO, uint(0), binary(bytes(8)), ZERO, FALSE)
    for at in range(count):
        first, sections, body = made(at)
        message = frame(start + first + sections + described(DATA, binary(body)))
        messages.append(message)
        bare.append(end + 8 + len(start) + len(first))
        end += len(message)
        bodies.append(end - len(body))
    return Transfers(Ring.of(messages), bodies, bare)
