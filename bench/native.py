"""Compiles bench/load.c with the machine's C compiler, once, and calls it. Without a compiler: `None`.

The library is kept in bench/.build under the hash of its source, so that an edit is never run stale.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.loads import Load, LoadError, Outcome

SOURCE = Path(__file__).with_name("load.c")
CELLS = 2_000_000
"""One cell a microsecond: latencies up to two seconds, longer ones in the last cell."""


class _Load(ctypes.Structure):
    """Mirror of `Load` in load.c, field by field."""

    _fields_ = (
        ("publish_fd", ctypes.c_int32),
        ("consume_fd", ctypes.c_int32),
        ("frames", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("content", ctypes.c_char_p),
        ("streams", ctypes.c_uint64),
        ("fanout", ctypes.c_uint64),
        ("messages", ctypes.c_uint64),
        ("window", ctypes.c_uint64),
        ("ack_every", ctypes.c_uint64),
        ("limit_ns", ctypes.c_uint64),
        ("stall_ns", ctypes.c_uint64),
        ("tags_used", ctypes.c_uint64),
        ("deliveries_used", ctypes.c_uint64),
        ("published", ctypes.c_uint64),
        ("amqp10", ctypes.c_uint64),
        ("bodies", ctypes.c_void_p),
        ("bare", ctypes.c_void_p),
        ("prefetch", ctypes.c_uint64),
        ("credit", ctypes.c_uint64),
        ("session_credit", ctypes.c_uint64),
        ("first_id", ctypes.c_uint64),
        ("confirm_cells", ctypes.POINTER(ctypes.c_uint32)),
        ("deliver_cells", ctypes.POINTER(ctypes.c_uint32)),
        ("cells", ctypes.c_uint64),
        ("sent", ctypes.c_uint64),
        ("confirmed", ctypes.c_uint64),
        ("nacked", ctypes.c_uint64),
        ("delivered", ctypes.c_uint64),
        ("acked", ctypes.c_uint64),
        ("elapsed_ns", ctypes.c_uint64),
        ("reads", ctypes.c_uint64),
        ("writes", ctypes.c_uint64),
        ("highest_cell", ctypes.c_uint64),
        ("error", ctypes.c_char * 256),
    )


def compiled(source: Path = SOURCE) -> ctypes.CDLL | None:
    """The loop of that file as a library, or None where it cannot be compiled."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        return None
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    library = source.parent / ".build" / f"{source.stem}-{digest}.so"
    if not library.exists():
        library.parent.mkdir(exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(partial), str(source)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        partial.replace(library)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, loads: Sequence[Load]) -> list[Outcome]:
    """Run loads side by side, each over its own sockets, to their end. Raises LoadError."""
    cells = ctypes.c_uint32 * CELLS
    confirm_cells, deliver_cells = cells(), cells()
    natives = (_Load * len(loads))()
    for native, load in zip(natives, loads, strict=True):
        _fill(native, load)
        native.confirm_cells = ctypes.cast(confirm_cells, ctypes.POINTER(ctypes.c_uint32))
        native.deliver_cells = ctypes.cast(deliver_cells, ctypes.POINTER(ctypes.c_uint32))
    if library.run_loads(natives, len(loads)):
        said = next(filter(None, (native.error for native in natives)), b"the loop ended without a reason")
        raise LoadError(said.decode(errors="replace"))
    for native, load in zip(natives, loads, strict=True):
        if load.amqp10:
            load.amqp10.kept = native.credit, native.session_credit, native.first_id
    outcomes = [
        Outcome(
            messages=native.sent,
            elapsed_ns=native.elapsed_ns,
            nacked=native.nacked,
            delivered=native.delivered,
            reads=native.reads,
            writes=native.writes,
        )
        for native in natives
    ]
    highest = max(native.highest_cell for native in natives)
    # All loads count into the same cells.
    outcomes[0].confirm_us = _counts(confirm_cells, highest)
    outcomes[0].deliver_us = _counts(deliver_cells, highest)
    return outcomes


def _fill(native: _Load, load: Load) -> None:
    native.publish_fd = load.publisher.fileno()
    native.consume_fd = -1 if load.consumer is None else load.consumer.fileno()
    native.frames = ctypes.addressof(ctypes.c_char.from_buffer(load.ring.octets))
    native.ends, native.count = load.ring.ends.buffer_info()
    native.content = load.content
    for name in ("messages", "window", "ack_every", "limit_ns", "stall_ns", "tags_used", "deliveries_used"):
        setattr(native, name, getattr(load, name))
    native.streams, native.fanout, native.published = load.streams, load.fanout, load.published
    native.cells = CELLS
    if load.amqp10:
        native.amqp10 = 1
        native.bodies = load.amqp10.transfers.bodies.buffer_info()[0]
        native.bare = load.amqp10.transfers.bare.buffer_info()[0]
        native.prefetch = load.amqp10.prefetch
        native.credit, native.session_credit, native.first_id = load.amqp10.kept


def _counts(cells: ctypes.Array[ctypes.c_uint32], highest: int) -> dict[int, int]:
    return {us: count for us, count in enumerate(cells[: highest + 1]) if count}
