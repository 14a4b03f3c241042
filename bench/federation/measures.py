"""The measures of `bench.federation`: each is a part of a run on one net, and gives figures by name."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import brokers
from bench.federation.nets import (
    EXCHANGE,
    Distance,
    Net,
    bound,
    depth,
    joined,
    opened,
    purge,
    until,
)
from bench.loads import LoadError
from understudy.demo.line import Line

Figures = dict[str, float]
SPARE = 240.0
"""Seconds that a load may take beside its measured part."""
QUEUE = "fed-q"
SIZE = 256
SATELLITE = Distance(0.3, 125_000.0)
FAR = Distance(0.15)
BINDINGS_AWAY = Distance(0.05)
AT_REST = 50
"""Messages that may wait when a link has caught up with live traffic."""


@dataclass(slots=True, frozen=True)
class Effort:
    """How long, and how much. `seconds`: of a load; `outage`: messages of it; `idle`: seconds; `bindings`:
    of Understudy, and of RabbitMQ, which takes a round trip for each."""

    seconds: float = 3.0
    octets: int = 20_000
    outage: int = 500_000
    satellite: int = 6_000
    idle: float = 65.0
    bindings: tuple[int, int] = (40_000, 400)


QUICK = Effort(0.5, 3_000, 20_000, 1_000, 3.0, (2_000, 50))


@dataclass(slots=True, frozen=True)
class Part:
    """Measured on one net after the other. `pairs`: both nodes are pairs; `offered`: names of the systems."""

    name: str
    distance: Distance | None
    measure: Callable[[Net, Effort, bool], Figures]
    """The last argument: is it RabbitMQ?"""
    offered: tuple[str, ...] = ("understudy", "rabbitmq")
    pairs: bool = False
    repeated: bool = False
    """As often as the run says; else once."""


# -- the load


def load(net: Net, messages: int, *options: str, consume: bool = True) -> dict[str, Any]:
    """What the generator says. Raises LoadError."""
    command = generator(net, "--messages", str(messages), *options)
    if consume:
        command += ["--consume", "--consume-port", str(net.down)]
    for node, pids in net.pids.items():
        for pid in pids:
            command += ["--pid", f"{node}={pid}"]
    try:
        done = subprocess.run(
            command, cwd=brokers.ROOT, capture_output=True, text=True, check=False, timeout=SPARE
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"it took longer than {SPARE:g} s") from None
    if done.returncode:
        raise LoadError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def generator(net: Net, *options: str) -> list[str]:
    command = [sys.executable, "-m", "bench.generator", "--port", str(net.up), "--via", EXCHANGE]
    return [*command, "--queue", QUEUE, "--size", str(SIZE), *options]


def passed(found: dict[str, Any], name: str) -> Figures:
    """Rate and CPU times of a load."""
    spent = found["cpu_us_per_message"]
    return {f"{name} rate": found["rate"], f"{name} up us": spent["up"], f"{name} down us": spent["down"]}


# -- the parts


def hop(net: Net, effort: Effort, rabbit: bool) -> Figures:
    """Transient, then persistent messages, from a publisher at one node to a consumer at the other."""
    bound(net.down, QUEUE, [QUEUE])
    joined(net, QUEUE)
    most = int((10_000 if rabbit else 600_000) * effort.seconds)
    timed = ("--seconds", str(effort.seconds))
    transient = passed(load(net, most, *timed), "transient")
    return transient | passed(load(net, most, *timed, "--persistent"), "persistent")


def between_pairs(net: Net, effort: Effort, rabbit: bool) -> Figures:
    """Persistent messages, each on two disks at either end."""
    bound(net.down, QUEUE, [QUEUE])
    joined(net, QUEUE)
    most = int(300_000 * effort.seconds)
    found = load(net, most, "--seconds", str(effort.seconds), "--persistent")
    return passed(found, "pairs")


def far(net: Net, effort: Effort, rabbit: bool) -> Figures:
    """A line of 300 ms there and back. RabbitMQ gets as much as its window lets through in that time."""
    bound(net.down, QUEUE, [QUEUE])
    joined(net, QUEUE)
    most = int((5_000 if rabbit else 200_000) * effort.seconds)
    return passed(load(net, most, "--seconds", str(effort.seconds)), "far")


def satellite(net: Net, effort: Effort, rabbit: bool) -> Figures:
    """A line of 600 ms there and back, and 1 Mbit/s: how long it takes to connect, and its share in use."""
    line = _line(net)
    bound(net.down, QUEUE, [QUEUE])
    began = time.monotonic()
    net.federate()
    until(lambda: net.interest() > 0, "the link to run")
    connected = time.monotonic() - began
    joined(net, QUEUE)
    before = line.back
    took = load(net, effort.satellite, "--warmup", "0")["seconds"]
    share = (line.back - before) / took / (SATELLITE.rate or 1)
    return {"satellite connects s": connected, "satellite share": 100 * share}


def bindings(net: Net, effort: Effort, rabbit: bool) -> Figures:
    """Many bindings, at 100 ms: until all are known upstream, and until they are again after a cut."""
    line = _line(net)
    count = effort.bindings[rabbit]
    bound(net.down, QUEUE, [f"key.{number}" for number in range(count)])
    began = time.monotonic()
    net.federate()
    until(lambda: net.interest() >= count, "the bindings to be known upstream", 4 * SPARE)
    figures = {"bindings first s": time.monotonic() - began, "bindings count": float(count)}
    if not rabbit:
        line.cut()
        until(lambda: net.interest() == 0, "the link to break")
        line.mend()
        until(lambda: net.interest() >= count, "the bindings to be known again")
        figures["bindings again s"] = time.monotonic() - line.joined
    return figures


def near(net: Net, effort: Effort, rabbit: bool) -> Figures:
    """Octets a message for some subscribers, octets of an idle link, and an outage that is drained."""
    line = _line(net)
    bound(net.down, QUEUE, [QUEUE])
    joined(net, QUEUE)
    figures: Figures = {}
    for subscribers in (1, 10, 1_000):
        for number in range(subscribers - 1):
            bound(net.down, f"copy-{number}", [QUEUE], most=1)
        figures[f"octets {subscribers}"] = _octets(
            net, line, effort.octets // (10 if subscribers > 10 else 1)
        )
    for number in range(999):
        _remove(net.down, f"copy-{number}")
    time.sleep(1.0)
    octets, began = line.there + line.back, time.monotonic()
    time.sleep(effort.idle)
    figures["idle octets/s"] = (line.there + line.back - octets) / (time.monotonic() - began)
    return figures | _outage(net, line, effort)


def _octets(net: Net, line: Line, messages: int) -> float:
    """Of one message on the line, both ways."""
    before = line.there + line.back
    load(net, messages, "--warmup", "0", consume=False)
    until(lambda: depth(net.down, QUEUE) >= messages and net.waiting() == 0, "all to be taken", SPARE)
    spent = line.there + line.back - before
    purge(net.down, QUEUE)
    return spent / messages


def _outage(net: Net, line: Line, effort: Effort) -> Figures:
    """What was published while the line was down comes, beside live traffic."""
    line.cut()
    load(net, effort.outage, "--warmup", "0", "--persistent", consume=False)
    begun = depth(net.down, QUEUE)
    live = subprocess.Popen(
        generator(net, "--messages", "100000000", "--window", "1", "--persistent"),
        cwd=brokers.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        line.mend()
        until(lambda: depth(net.down, QUEUE) > begun, "the first message after the outage")
        until(lambda: net.waiting() <= AT_REST, "what waited to be taken", SPARE)
        took = time.monotonic() - line.joined
        drained = depth(net.down, QUEUE) - begun
    finally:
        live.kill()
        live.wait()
    return {"outage rate": drained / took}


def _line(net: Net) -> Line:
    assert net.line is not None
    return net.line


def _remove(port: int, queue: str) -> None:
    wire = opened(port)
    wire.delete(queue)
    wire.close()


PARTS = [
    Part("hop", None, hop, ("understudy", "rabbitmq", "rabbitmq-shovel"), repeated=True),
    Part("pairs", None, between_pairs, ("understudy",), pairs=True, repeated=True),
    Part("far", FAR, far, ("understudy", "rabbitmq", "rabbitmq-shovel")),
    Part("satellite", SATELLITE, satellite),
    Part("bindings", BINDINGS_AWAY, bindings),
    Part("near", Distance(), near),
]
