"""What watching a node costs its clients: `python -m bench.management`.

A node in this process, with queues, messages and connections, and an HTTP listener on loopback; the client is
a thread. CPU time is that of the event loop's thread, so a busy machine changes it little. A *turn* is what
clients of the broker wait for: the longest time until the loop comes to everybody again.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.compare.rows import Row
from bench.gate.node import Driver, Lanes, running
from broker.amqp091.server.connection import ServerConnection
from broker.model.statistics import Counts
from broker.sampling import EVERY
from broker.server.clock import now
from understudy.http.server import HttpServer
from understudy.shared.addresses import HostPort
from understudy.shared.compiled_modules import Build

PATHS = (
    "/api/queues?page=1&page_size=100",
    "/api/queues?page=1&page_size=100&sort=messages&sort_reverse=true",
    "/api/queues?page=1&page_size=100&name=7$&use_regex=true&columns=name,messages",
    "/api/queues?disable_stats=true&enable_queue_totals=true",
    "/api/queues",
    "/api/overview",
    "/metrics",
    "/metrics/detailed?family=queue_coarse_metrics",
    "/metrics/per-object",
)
_LOGIN = {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"}
_BODY = b"x" * 100
RATE = 100_000
"""Messages a second at which a message's part of a pass is reckoned."""
WINDOWS = (1, 100)


class Figures(NamedTuple):
    """In seconds; `octets` of the answer."""

    wall: float
    cpu: float
    turn: float
    octets: int


class Turns:
    """Measures the turns of the event loop until `done`."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.done = False

    async def run(self) -> None:
        last = time.thread_time()
        while not self.done:
            await asyncio.sleep(0)
            at = time.thread_time()
            self.longest = max(self.longest, at - last)
            last = at


def declare(driver: Driver, queues: int) -> None:
    """Queues with a message each."""
    vhost = driver.node.vhost
    for number in range(queues):
        name = f"queue-{number}"
        vhost.declare_queue(name, owner=driver, durable=False)
        vhost.publish(
            vhost.route("", name), [_message()], persistent=False, channel=1, largest_frame=200,
            producer=None, first_tag=1,
        )  # fmt: skip
        if number % 500 == 0:
            driver.tick()
    driver.tick()


def _message() -> bytes:
    """The content frames of one message."""
    size = len(_BODY)
    header = b"\x02\0\x01" + (14).to_bytes(4, "big") + b"\0<\0\0" + size.to_bytes(8, "big") + b"\0\0\xce"
    return header + b"\x03\0\x01" + size.to_bytes(4, "big") + _BODY + b"\xce"


def sampling(driver: Driver, queues: int, connections: int, passes: int) -> Figures:
    """A pass of the sampler over everything, while all counters move. `turn`: its longest step."""
    declare(driver, queues)
    for _ in range(connections):
        driver.client()
    moved = [queue.counts for queue in driver.node.vhosts.queues_by_uuid.values()]
    wall, cpu, turn = 0.0, 0.0, 0.0
    for number in range(passes):
        _move(moved, number)
        gc.collect()
        begun, at = time.perf_counter(), time.thread_time()
        for _ in driver.node.broker.sampler.passes(now()):
            spent = time.thread_time() - at
            cpu, turn, at = cpu + spent, max(turn, spent), time.thread_time()
        spent = time.thread_time() - at
        cpu, turn, wall = cpu + spent, max(turn, spent), wall + time.perf_counter() - begun
    return Figures(wall / passes, cpu / passes, turn, 0)


class Cost(NamedTuple):
    """CPU microseconds a message: all of it, its part of a pass of the sampler, and counting."""

    message: float
    sampled: float
    counted: float


def cost(driver: Driver, window: int, repeats: int) -> Cost:
    """With 1,000 queues and connections, of which 50 publish and 50 consume. The sampler passes between the
    measured windows. Its cost is divided by the messages that come between two passes at RATE."""
    row = Row("watched", "", f"--connections 50 --window {window} --message-ids --durable --persistent")
    declare(driver, 950)
    for _ in range(900):
        driver.client()
    lanes = Lanes(driver, row)
    messages = max(10_000, 50 * window)
    lanes.slice_us(messages)
    plain, passes = [], []
    for _ in range(repeats):
        plain.append(lanes.slice_us(messages))
        begun = time.thread_time()
        for _ in driver.node.broker.sampler.passes(now()):
            pass
        passes.append(time.thread_time() - begun)
    return Cost(min(plain), 1e6 * min(passes) / (RATE * EVERY), 1e6 * counting(driver) / window)


def counting(driver: Driver) -> float:
    """CPU seconds to count one run where it passes: its channel, exchange, queue and consumer; a slight
    overestimate for compiled modules, as the loop is not compiled."""
    vhost = driver.node.vhost
    queue = next(iter(vhost.queues.values()))
    route, exchange, rounds = vhost.route("", queue.name), "", 100_000
    connection = next(c for c in driver.node.broker.connections if isinstance(c, ServerConnection))
    output, came, consumer = next(iter(connection.channels.values())).output, queue.came, Counts()
    assert came is not None
    at = time.thread_time()
    for _ in range(rounds):
        output.count_published(1, exchange)
        output.count_routed(1, route, False)
        if exchange is not came.name:
            came.turn(exchange, queue.counts.publish)
        queue.counts.publish += 1
        for counts in (output.counts, queue.counts, consumer):
            counts.deliver += 1
            counts.ack += 1
    return (time.thread_time() - at) / rounds


def _move(all_counts: list[Counts], number: int) -> None:
    """No sample is equal to the one before."""
    for counts in all_counts:
        counts.publish += number + 1


async def answers(driver: Driver, paths: tuple[str, ...], repeats: int) -> dict[str, Figures]:
    """Each path asked so often, one at a time; the fastest of each."""
    for _ in driver.node.broker.sampler.passes(now()):
        pass
    node = driver.node
    server = HttpServer(node, node.broker.logins, clock=now, tick_soon=lambda: None)
    at = await server.start(HostPort("127.0.0.1", 0))
    found: dict[str, Figures] = {}
    try:
        for path in paths:
            asked = [await _asked(f"http://{at}{path}") for _ in range(repeats)]
            found[path] = Figures(*(min(values) for values in zip(*asked, strict=True)))
    finally:
        await server.close()
    return found


async def _asked(url: str) -> Figures:
    """Twice: whoever measures turns keeps the loop busy."""

    def fetch() -> int:
        with urllib.request.urlopen(urllib.request.Request(url, headers=_LOGIN)) as answer:
            return sum(len(piece) for piece in iter(lambda: answer.read(1 << 16), b""))

    begun, at = time.perf_counter(), time.thread_time()
    octets = await asyncio.to_thread(fetch)
    wall, cpu = time.perf_counter() - begun, time.thread_time() - at
    turns = Turns()
    watching = asyncio.create_task(turns.run())
    await asyncio.to_thread(fetch)
    turns.done = True
    await watching
    return Figures(wall, cpu, turns.longest, octets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=10_000, help="for the answers")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print(f"{Build.name} modules")
    _in_folder(lambda driver: _tell_sampling(driver, given.repeats))
    for window in WINDOWS:
        _in_folder(lambda driver, window=window: _tell_cost(driver, window, given.repeats))  # type: ignore[misc]
    _in_folder(lambda driver: _tell_answers(driver, given.queues, given.repeats))


def _in_folder(what: Callable[[Driver], None]) -> None:
    name = "understudy-management-"
    with tempfile.TemporaryDirectory(prefix=name) as folder, running(Path(folder)) as driver:
        what(driver)


def _tell_sampling(driver: Driver, passes: int) -> None:
    found = sampling(driver, 1000, 1000, passes)
    print("\n1,000 queues and 1,000 connections with a channel each\n")
    print(f"| a pass of the sampler, each {EVERY:g} s | {1e3 * found.cpu:.1f} ms |")
    print(f"| of each second of the loop | {1e3 * found.cpu / EVERY:.2f} ms |")
    print(f"| longest step | {1e3 * found.turn:.2f} ms |")


def _tell_cost(driver: Driver, window: int, repeats: int) -> None:
    message, sampled, counted = cost(driver, window, repeats)
    print(f"\n1,000 queues, 1,000 connections, persistent messages, window {window}; us of CPU a message\n")
    print(f"| all of it | {message:.1f} |")
    print(f"| of a pass, at {RATE:,} messages a second | {sampled:.3f} ({100 * sampled / message:.2f} %) |")
    print(f"| counting | {counted:.3f} ({100 * counted / message:.2f} %) |")


def _tell_answers(driver: Driver, queues: int, repeats: int) -> None:
    declare(driver, queues)
    print(f"\n{queues:,} queues with a message each; the fastest of {repeats}\n")
    print("| path | ms | CPU ms | longest turn ms | KB |")
    print("|---|--:|--:|--:|--:|")
    for path, each in asyncio.run(answers(driver, PATHS, repeats)).items():
        times = " | ".join(f"{1e3 * value:.1f}" for value in each[:3])
        print(f"| `{path}` | {times} | {each.octets / 1e3:,.0f} |")


if __name__ == "__main__":
    main()
