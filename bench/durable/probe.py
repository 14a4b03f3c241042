"""How long brokers take to answer, asked a thousand times a second: `python -m bench.durable.probe PORT...`

A process of its own, so that nothing of the measurement delays it; its loop is C (probe.c). The
question is basic.qos on a channel of its own: a broker answers it in the tick in which it reads it, nothing
is stored or sent on for it, so an answer is late only when the broker's event loop did not come round.
Ends when its standard input is closed, and prints what it counted as JSON. Called by bench/durable/stalls.py.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import native
from bench.brokers import HOST
from bench.loads import LoadError, percentile
from bench.wire import Wire, WireError, method

SOURCE = Path(__file__).with_suffix(".c")
CELLS = 10_000_000
"""One cell a microsecond: up to ten seconds, longer in the last one."""
LAST_WAIT = 30.0
"""Seconds for the last answers."""
QUESTION = method(1, 60, 10, b"\0\0\0\0\0\1\0")
ANSWER = method(1, 60, 11)


class _Asked(ctypes.Structure):
    """Mirror of `Asked` in probe.c."""

    _fields_ = (
        ("fd", ctypes.c_int32),
        ("cells", ctypes.POINTER(ctypes.c_uint32)),
        ("answered", ctypes.c_uint64),
        ("sent", ctypes.c_uint64),
        ("skipped", ctypes.c_uint64),
    )


class _Probe(ctypes.Structure):
    """Mirror of `Probe` in probe.c."""

    _fields_ = (
        ("stop_fd", ctypes.c_int32),
        ("period_ns", ctypes.c_uint64),
        ("last_wait_ns", ctypes.c_uint64),
        ("question", ctypes.c_char_p),
        ("question_size", ctypes.c_uint64),
        ("answer", ctypes.c_char_p),
        ("answer_size", ctypes.c_uint64),
        ("cells", ctypes.c_uint64),
        ("late_cells", ctypes.POINTER(ctypes.c_uint32)),
        ("ticks", ctypes.c_uint64),
        ("ticks_missed", ctypes.c_uint64),
        ("elapsed_ns", ctypes.c_uint64),
        ("error", ctypes.c_char * 256),
    )


def measure(ports: list[int], hertz: float, stop_fd: int) -> dict[str, Any]:
    """Probe until `stop_fd` is readable or closed. Raises LoadError, WireError, OSError."""
    library = native.compiled(SOURCE)
    if library is None:
        raise LoadError("no C compiler: install gcc")
    wires = [Wire.open(HOST, port, user="guest", password="guest") for port in ports]
    for wire in wires:
        wire.socket.setblocking(False)
    cells = [(ctypes.c_uint32 * CELLS)() for _ in range(len(ports) + 1)]
    pointers = [ctypes.cast(one, ctypes.POINTER(ctypes.c_uint32)) for one in cells]
    asked = (_Asked * len(ports))(
        *(_Asked(fd=wire.socket.fileno(), cells=of) for wire, of in zip(wires, pointers, strict=False))
    )
    probe = _Probe(
        stop_fd=stop_fd,
        period_ns=int(1e9 / hertz),
        last_wait_ns=int(LAST_WAIT * 1e9),
        question=QUESTION,
        question_size=len(QUESTION),
        answer=ANSWER,
        answer_size=len(ANSWER),
        cells=CELLS,
        late_cells=pointers[-1],
    )
    own = time.process_time()
    if library.run_probe(ctypes.byref(probe), asked, len(ports)):
        raise LoadError(probe.error.decode(errors="replace"))
    own = time.process_time() - own
    for wire in wires:
        wire.close()
    found = [
        {"port": port, "answers": one.answered, "skipped": one.skipped, **figures(counts)}
        for port, one, counts in zip(ports, asked, cells, strict=False)
    ]
    return {
        "brokers": found,
        "late": figures(cells[-1]),
        "ticks": probe.ticks,
        "ticks_missed": probe.ticks_missed,
        "seconds": round(probe.elapsed_ns / 1e9, 3),
        "cpu_seconds": round(own, 3),
    }


def figures(cells: ctypes.Array[ctypes.c_uint32]) -> dict[str, float | None]:
    """In milliseconds."""
    raw = memoryview(cells).cast("B").cast("I")
    counts = {us: count for us, count in enumerate(raw) if count}
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}
    us = {name: percentile(counts, share) for name, share in shares.items()}
    return {name: None if value is None else value / 1000 for name, value in us.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.durable.probe", description=__doc__.split("\n")[0])
    parser.add_argument("ports", nargs="+", type=int)
    parser.add_argument("--hertz", type=float, default=1000, help="questions a second to each")
    options = parser.parse_args()
    try:
        found = measure(options.ports, options.hertz, sys.stdin.fileno())
    except (OSError, WireError, LoadError) as error:
        print(f"bench.durable.probe: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
