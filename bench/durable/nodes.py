"""What the parts of bench/durable share: to fill, end and start brokers, and what /proc knows of them."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import brokers
from bench.clock import cpu_ns
from bench.join import Publisher
from bench.wire import Wire, longstr, publish_frames, shortstr

PATIENCE = 300.0
"""Seconds that a start, or a return, may take before it counts as failed."""
BLOCK = 500
SYNCED = 2**17
"""Bytes of one group, more or less: half a window of 1000 messages of 256 bytes."""


@dataclass(slots=True)
class Started:
    """One start, from exec to the answer of queue.declare."""

    broker: brokers.Broker
    seconds: float
    cpu_seconds: float
    peak_mib: float
    messages: int
    """In the queue that was asked for."""


def connected(port: int) -> Wire:
    """A connection with a channel, patient enough for a busy broker."""
    return Wire.open(brokers.HOST, port, user="guest", password="guest", timeout=PATIENCE)


def fill(port: int, queue: str, count: int, size: int, *, distinct: bool = False) -> None:
    """So many persistent messages in a durable queue, all confirmed; `distinct`: each with a message-id."""
    publisher = Publisher(port, 20 * BLOCK)
    publisher.wire.declare(queue, durable=True)
    body = bytes(32 + at % 64 for at in range(size))
    alike = publish_frames(1, queue, body, persistent=True) * BLOCK
    for at in range(0, count, BLOCK):
        some = min(BLOCK, count - at)
        if distinct:
            ids = [str(uuid.uuid4()) for _ in range(some)]
            frames = b"".join(publish_frames(1, queue, body, persistent=True, message_id=one) for one in ids)
        else:
            frames = alike[: len(alike) // BLOCK * some]
        publisher.send(frames, some)
    publisher.finish()
    publisher.wire.close()


def depth(wire: Wire, queue: str) -> int:
    """Ready messages of a queue, by queue.declare passive. WireError if there is none."""
    answer = wire.call(1, 50, 10, b"\0\0" + shortstr(queue) + b"\1" + longstr(b""))
    count: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
    return count


def end(cluster: brokers.Cluster, broker: brokers.Broker, how: str) -> float:
    """`kill` is SIGKILL, `stop` is SIGTERM; the seconds until the process is gone. Raises BrokerError."""
    began = time.monotonic()
    if how == "kill":
        broker.process.kill()
    else:
        broker.process.terminate()
    try:
        broker.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise brokers.BrokerError(f"{broker.name} does not end:\n{broker.last_words()}") from None
    cluster.brokers.remove(broker)
    return time.monotonic() - began


def start(cluster: brokers.Cluster, name: str, port: int, queue: str, *settings: str) -> Started:
    """Exec, then ask for `queue` until there is an answer. Raises BrokerError, WireError."""
    began = time.monotonic()
    broker = cluster.start(name, port, *settings)
    while True:
        try:
            socket.create_connection((brokers.HOST, port), 5).close()
            break
        except OSError:
            if broker.process.poll() is not None or time.monotonic() > began + PATIENCE:
                raise brokers.BrokerError(f"{name} does not listen:\n{broker.last_words()}") from None
            time.sleep(0.002)
    wire = connected(port)
    messages = depth(wire, queue)
    seconds = time.monotonic() - began
    pid = broker.process.pid
    started = Started(broker, seconds, cpu_ns(pid) / 1e9, peak_mib(pid), messages)
    wire.close()
    return started


def peak_mib(pid: int) -> float:
    """The most memory that was resident, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


@dataclass(slots=True, frozen=True)
class Written:
    """What a process has handed to files so far."""

    bytes: int
    syncs: int
    """Of its store."""

    @classmethod
    def of(cls, broker: brokers.Broker) -> Written:
        total = _io(Path(f"/proc/{broker.process.pid}/io"))
        return cls(total["wchar"], brokers.status(broker)["store_syncs"])

    def since(self, before: Written) -> Written:
        return Written(self.bytes - before.bytes, self.syncs - before.syncs)


def _io(path: Path) -> dict[str, int]:
    pairs = (line.split(": ") for line in path.read_text().splitlines())
    return {name: int(value) for name, value in pairs}


def on_and_off_core(pid: int) -> tuple[float, float]:
    """Seconds that the process's first thread ran, and that it was ready to run while others did."""
    ran, waited = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[:2]
    return int(ran) / 1e9, int(waited) / 1e9


def size_of(folder: Path) -> int:
    """Bytes of all files below; one that is removed meanwhile does not count."""
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(parent) / name).stat().st_size
            except FileNotFoundError:
                pass


def file_system(folder: Path) -> str:
    """As `ext4 on /dev/vda`, from /proc/mounts: the longest mount point above the folder."""
    found, longest = "unknown", -1
    whole = folder.resolve()
    for line in Path("/proc/mounts").read_text().splitlines():
        device, point, kind = line.split()[:3]
        if whole.is_relative_to(point) and len(point) >= longest:
            found, longest = f"{kind} on {device}", len(point)
    return found


def bare_sync_ms(folder: Path | None, writers: int = 1, times: int = 100) -> tuple[float, float]:
    """Half of all, and all but one in a hundred: milliseconds of a fdatasync after an append of SYNCED, while
    so many append and sync a file of their own.
    """
    with ThreadPoolExecutor(writers) as pool:
        each = [pool.submit(_sync_ms, folder, times) for _ in range(writers)]
        taken = sorted(ms for one in each for ms in one.result())
    return taken[len(taken) // 2], taken[len(taken) * 99 // 100]


def _sync_ms(folder: Path | None, times: int) -> list[float]:
    taken = []
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(times):
            file.write(bytes(SYNCED))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(1000 * (time.perf_counter() - began))
    return taken


def forget_pages(folder: Path) -> None:
    """Drop the files below from the page cache, as a reboot would; no other file's pages are touched."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def said(broker: brokers.Broker, sentence: str) -> list[float]:
    """When the broker's log has this, in seconds of the wall clock."""
    lines = broker.log.read_text(errors="replace").splitlines()
    return [
        datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp() for line in lines if sentence in line
    ]
