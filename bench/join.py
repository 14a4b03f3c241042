"""What it costs to take a backup in: `python -m bench.join [deep|many|live|busy] [--repeats N] [--json]`.

Real processes: a pair, of which the backup is ended, loses its disk and is started again, empty.

    deep   a queue of a million messages, every other run of them persistent, on an otherwise idle pair
    many   10,000 queues of a few messages each
    live   20,000 messages a second offered with confirms to one queue while a deep one is behind the joiner
    busy   100,000 empty queues, each bound once, both cores taken by other processes, and 1,000 messages a
           second offered; the backup comes back twice: empty, and with what it had

From the join to ready is as the brokers' logs have it. A probe asks the primary something that needs no
backup each two milliseconds and notes the longest time it had to wait: idle, for comparison, and during the
join. CPU seconds are those of the brokers over the join.
"""

from __future__ import annotations

import argparse
import json
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from statistics import median
from typing import Any

from bench import brokers
from bench.clock import cpu_ns
from bench.wire import Wire, WireError, longstr, method, publish_frames, shortstr

BLOCK = 50
"""Messages of one kind in a row, and of one write of the paced publisher."""
PATIENCE = 120.0
PROBE_EVERY = 0.002


class Probe(threading.Thread):
    """The longest wait for an answer of the broker, in seconds, since `reset`."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.wire = Wire.open(brokers.HOST, port, user="guest", password="guest")
        self.longest = 0.0
        self.enough = threading.Event()
        # Exclusive: of no interest to a backup, so that nothing but the primary's own ticks holds an answer.
        arguments = b"\0\0" + shortstr("probe") + bytes([4]) + longstr(b"")
        self.wire.call(1, 50, 10, arguments)
        self.start()

    def run(self) -> None:
        get = b"\0\0" + shortstr("probe") + b"\1"
        while not self.enough.is_set():
            began = time.monotonic()
            self.wire.socket.sendall(method(1, 60, 70, get))
            self.wire.expect((60, 72))
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(PROBE_EVERY)

    def reset(self) -> float:
        """The longest so far, in milliseconds."""
        longest, self.longest = self.longest, 0.0
        return round(1000 * longest, 1)

    def stop(self) -> float:
        self.enough.set()
        self.join()
        self.wire.close()
        return self.reset()


class Publisher:
    """Publishes blocks on one connection with confirms, as fast as the window lets or at a rate."""

    def __init__(self, port: int, window: int) -> None:
        self.wire = Wire.open(brokers.HOST, port, user="guest", password="guest")
        self.wire.confirm_select()
        self.window = window
        self.sent = self.confirmed = 0
        self.longest = 0.0
        self._heard = time.monotonic()

    def begin(self) -> None:
        """From now on a time without confirms counts."""
        self._heard = time.monotonic()

    def send(self, frames: bytes, count: int) -> None:
        """One write; confirms are read meanwhile, and until the window has room again."""
        view, socket = memoryview(frames), self.wire.socket
        self.sent += count
        while view or self.sent - self.confirmed > self.window:
            readable, writable, _ = select.select([socket], [socket] if view else [], [], PATIENCE)
            if writable:
                view = view[socket.send(view) :]
            if readable:
                self.read()
            elif not writable:
                raise WireError("no confirm came")

    def read(self) -> None:
        """Take what confirms there are."""
        before = self.confirmed
        while self.wire.held or select.select([self.wire.socket], [], [], 0)[0]:
            kind, payload = self.wire.read_frame()
            if kind != 1 or payload[:4] != struct.pack(">HH", 60, 80):
                raise WireError("something else than a confirm")
            (tag, multiple) = struct.unpack_from(">QB", payload, 4)
            self.confirmed = tag if multiple else self.confirmed + 1
        if self.confirmed > before:
            now = time.monotonic()
            self.longest = max(self.longest, now - self._heard)
            self._heard = now

    def finish(self) -> None:
        while self.confirmed < self.sent:
            if not select.select([self.wire.socket], [], [], PATIENCE)[0]:
                raise WireError("no confirm came")
            self.read()

    def for_a_while(self, frames: bytes, rate: float, until: Callable[[], bool]) -> dict[str, float]:
        """BLOCK messages at a time, `rate` a second, until `until`: what was confirmed a second, and the
        longest time without a confirm.
        """
        began = time.monotonic()
        first, sent, self.longest = self.confirmed, 0, 0.0
        while not until():
            early = began + sent / rate - time.monotonic()
            if early > 0:
                select.select([self.wire.socket], [], [], early)
                self.read()
            else:
                self.send(frames, BLOCK)
                sent += BLOCK
        seconds = time.monotonic() - began
        return {
            "rate": round((self.confirmed - first) / seconds),
            "pause ms": round(1000 * max(self.longest, time.monotonic() - self._heard), 1),
        }


def fill(port: int, queue: str, count: int, size: int) -> None:
    """Runs of persistent and of transient messages in turn."""
    publisher = Publisher(port, 5_000)
    publisher.wire.declare(queue, durable=True)
    body = bytes(32 + at % 64 for at in range(size))
    frames = b"".join(
        publish_frames(1, queue, body, persistent=persistent) * BLOCK for persistent in (True, False)
    )
    for _ in range(0, count, 2 * BLOCK):
        publisher.send(frames, 2 * BLOCK)
    publisher.finish()
    publisher.wire.close()


def fill_many(port: int, queues: int, each: int, size: int) -> None:
    publisher = Publisher(port, 5_000)
    wire, body = publisher.wire, bytes(32 + at % 64 for at in range(size))
    names = [f"q-{number}" for number in range(queues)]
    for at in range(0, queues, 500):
        some = names[at : at + 500]
        declare = [b"\0\0" + shortstr(name) + b"\2" + longstr(b"") for name in some]
        wire.socket.sendall(b"".join(method(1, 50, 10, arguments) for arguments in declare))
        for _ in some:
            wire.expect((50, 11))
    for name in names:
        publisher.send(publish_frames(1, name, body, persistent=True) * each, each)
    publisher.finish()
    wire.close()


class Joining:
    """A pair, and one join of its backup after another."""

    def __init__(self, cluster: brokers.Cluster) -> None:
        self.cluster = cluster
        self.primary, backup = cluster.brokers
        self.port = backup.port
        self.members = f"ha.brokers={self.primary.address},{backup.address}"
        self._joins = 0

    def part(self, *, keeps_its_disk: bool = False) -> None:
        """The backup is ended, excluded, and loses its disk, or the next one takes it over."""
        backup = self.cluster.brokers.pop()
        backup.process.terminate()
        backup.process.wait(PATIENCE)
        if keeps_its_disk:
            (self.cluster.folder / backup.name).rename(self.cluster.folder / f"backup{self._joins + 1}")
        else:
            shutil.rmtree(self.cluster.folder / backup.name)
        said = f"{backup.name} is excluded"
        brokers._until(self.primary, lambda: self._at(self.primary, said) is not None, "excludes nobody")

    def join(self) -> None:
        """It is started again; returns at once."""
        self._joins += 1
        self.cluster.start(f"backup{self._joins}", self.port, self.members)

    @property
    def backup(self) -> brokers.Broker:
        return self.cluster.brokers[1]

    def ready(self) -> bool:
        if self.backup.process.poll() is not None:
            raise brokers.BrokerError(f"the backup has ended:\n{self.backup.last_words()}")
        return self._at(self.primary, f"{self.backup.name} is in sync") is not None

    def begun(self) -> bool:
        return self._at(self.primary, f"{self.backup.name} joins, ") is not None

    def seconds(self) -> float:
        """From the join until the primary counted on it."""
        began = self._at(self.primary, f"{self.backup.name} joins, ")
        ended = self._at(self.primary, f"{self.backup.name} is in sync")
        if began is None or ended is None:
            raise brokers.BrokerError("the backup has not joined")
        return ended - began

    def attempts(self) -> int:
        """How often a backup has begun to join since the pair was made."""
        return sum("joins, " in line for line in self.primary.log.read_text(errors="replace").splitlines())

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far."""
        pair = {"primary": self.primary, "backup": self.backup}
        return {name: cpu_ns(broker.process.pid) / 1e9 for name, broker in pair.items()}

    @staticmethod
    def _at(broker: brokers.Broker, sentence: str) -> float | None:
        """When the broker's log says so."""
        for line in broker.log.read_text(errors="replace").splitlines():
            if sentence in line:
                return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
        return None


def joined(
    joining: Joining, meanwhile: Callable[[], None], *, keeps_its_disk: bool = False
) -> dict[str, Any]:
    """One join: seconds, CPU, the probe."""
    joining.part(keeps_its_disk=keeps_its_disk)
    probe = Probe(joining.primary.port)
    meanwhile_until(2.0, meanwhile)
    idle = probe.reset()
    joining.join()
    wait(joining, joining.begun, meanwhile)
    probe.reset()
    before = joining.cpu()
    wait(joining, joining.ready, meanwhile)
    longest, after = probe.stop(), joining.cpu()
    return {
        "seconds": round(joining.seconds(), 3),
        "probe idle ms": idle,
        "probe ms": longest,
        **{f"cpu {name} s": round(after[name] - before[name], 3) for name in after},
    }


def meanwhile_until(seconds: float, meanwhile: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        meanwhile()


def wait(joining: Joining, condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise brokers.BrokerError(f"no end of the join:\n{joining.primary.last_words()}")
        meanwhile()


def deep(options: argparse.Namespace) -> dict[str, Any]:
    with brokers.pair() as cluster:
        joining = Joining(cluster)
        fill(joining.primary.port, "deep", options.messages, options.size)
        found = joined(joining, lambda: time.sleep(0.01))
        found["messages/s"] = round(options.messages / found["seconds"])
        for name in ("primary", "backup"):
            found[f"{name} us/message"] = round(1e6 * found[f"cpu {name} s"] / options.messages, 2)
        return found


def many(options: argparse.Namespace) -> dict[str, Any]:
    with brokers.pair() as cluster:
        joining = Joining(cluster)
        fill_many(joining.primary.port, options.queues, 3, options.size)
        return joined(joining, lambda: time.sleep(0.01))


def live(options: argparse.Namespace) -> dict[str, Any]:
    with brokers.pair() as cluster:
        joining = Joining(cluster)
        port = joining.primary.port
        fill(port, "deep", options.messages, options.size)
        publisher = Publisher(port, 100_000)
        publisher.wire.declare("live", durable=True)
        body = bytes(32 + at % 64 for at in range(options.size))
        frames = publish_frames(1, "live", body, persistent=True) * BLOCK
        joining.part()
        publisher.begin()
        end = time.monotonic() + 4
        before = publisher.for_a_while(frames, options.rate, lambda: time.monotonic() > end)
        joining.join()
        starting = publisher.for_a_while(frames, options.rate, seldom(joining.begun))
        cpu = joining.cpu()
        during = publisher.for_a_while(frames, options.rate, seldom(joining.ready))
        after = {name: spent - cpu[name] for name, spent in joining.cpu().items()}
        publisher.finish()
        publisher.wire.close()
        return {
            "seconds": round(joining.seconds(), 3),
            **{f"before {key}": value for key, value in before.items()},
            **{f"starting {key}": value for key, value in starting.items()},
            **{f"during {key}": value for key, value in during.items()},
            **{f"cpu {name} s": round(spent, 3) for name, spent in after.items()},
        }


def busy(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        cluster = stack.enter_context(brokers.pair())
        joining = Joining(cluster)
        port = joining.primary.port
        declare_bound(port, options.busy_queues)
        for _ in range(options.spinning):
            spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        publisher = Publisher(port, 100_000)
        publisher.wire.declare("live", durable=True)
        body = bytes(32 + at % 64 for at in range(options.size))
        frames = publish_frames(1, "live", body, persistent=True) * BLOCK

        def meanwhile() -> None:
            publisher.send(frames, BLOCK)
            time.sleep(BLOCK / 1000)

        empty = joined(joining, meanwhile)
        again = joined(joining, meanwhile, keeps_its_disk=True)
        publisher.finish()
        publisher.wire.close()
        return {
            **{f"empty: {key}": value for key, value in empty.items()},
            **{f"again: {key}": value for key, value in again.items()},
            "joins": joining.attempts(),
        }


def declare_bound(port: int, queues: int) -> None:
    """Durable queues, each bound to amq.direct by its name."""
    wire = Wire.open(brokers.HOST, port, user="guest", password="guest", timeout=PATIENCE)
    for at in range(0, queues, 500):
        some = [f"q-{number}" for number in range(at, min(at + 500, queues))]
        asked = [
            method(1, 50, 10, b"\0\0" + shortstr(name) + b"\2" + longstr(b""))
            + method(
                1, 50, 20,
                b"\0\0" + shortstr(name) + shortstr("amq.direct") + shortstr(name) + b"\0" + longstr(b""),
            )
            for name in some
        ]  # fmt: skip
        wire.socket.sendall(b"".join(asked))
        for _ in some:
            wire.expect((50, 11))
            wire.expect((50, 21))
    wire.close()


def seldom(condition: Callable[[], bool]) -> Callable[[], bool]:
    """Looks every 20 ms only."""
    looked = 0.0

    def look() -> bool:
        nonlocal looked
        now = time.monotonic()
        if now - looked < 0.02:
            return False
        looked = now
        return condition()

    return look


CASES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "deep": deep, "many": many, "live": live, "busy": busy,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.join", description=__doc__.split("\n")[0])
    parser.add_argument("case", nargs="*", help="deep, many, live, busy (all)")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the deep queue")
    parser.add_argument("--size", type=int, default=100, help="bytes of body")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--busy-queues", type=int, default=100_000)
    parser.add_argument("--spinning", type=int, default=2, help="processes that take what CPU there is")
    parser.add_argument("--rate", type=float, default=20_000, help="messages a second offered")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        for case in options.case or CASES:
            runs = [CASES[case](options) for _ in range(options.repeats)]
            found = {key: median(run[key] for run in runs) for key in runs[0]}
            if options.json:
                print(json.dumps({"case": case, "runs": runs}), flush=True)
            else:
                print(f"{case}: " + ", ".join(f"{key} {value}" for key, value in found.items()), flush=True)
    except (brokers.BrokerError, WireError, OSError) as error:
        print(f"bench.join: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
