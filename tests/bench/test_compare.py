"""`make bench-compare`: what it says of results, what it checks of messages, and what it needs."""

from __future__ import annotations

import os
import shutil
import socket
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import brokers, generator, native, octets
from bench.compare import overhead, rabbitmq
from bench.compare.__main__ import main
from bench.compare.modules import Modules
from bench.compare.report import Figures, svg, tables
from bench.compare.rows import BREADTH, MAIN
from bench.compare.systems import systems
from bench.generator import arguments, measure
from bench.loads import LoadError
from tests.bench.echo_broker import EchoBroker

ENGINES = [
    pytest.param("c", marks=pytest.mark.skipif(native.compiled() is None, reason="no C compiler")),
    "python",
]
LOAD = ["--messages", "500", "--warmup", "30", "--window", "20", "--consume", "--verify", "--ack-every", "1"]


class Damaging(EchoBroker):
    """Delivers the 200th message otherwise than it was published."""

    def __init__(self, damage: str) -> None:
        super().__init__()
        self.damage = damage

    def settle(self, connection: socket.socket, deliveries: bytearray) -> None:
        if self.published >= 200:
            {"body": self.body, "header": self.properties, "number": self.number}[self.damage](deliveries)
        super().settle(connection, deliveries)

    def body(self, deliveries: bytearray) -> None:
        deliveries[-10] ^= 1

    def properties(self, deliveries: bytearray) -> None:
        # The last octet of the content header, which the body frame of 7 + 256 + 1 octets follows.
        deliveries[-1 - 264 - 1] ^= 3

    def number(self, deliveries: bytearray) -> None:
        deliveries[-257 + 7] ^= 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("more", [[], ["--mix"], ["--size", "20000"], ["--message-ids"]])
def test_verified_messages_are_counted_alike(engine: str, more: list[str]) -> None:
    with EchoBroker() as broker:
        result = measure(arguments(["--port", str(broker.port), "--engine", engine, *LOAD, *more]))
    assert result["verified"]
    assert result["messages"] == result["delivered"] == 500 == broker.published - 30


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [("body", "another content"), ("header", "other properties"), ("number", "was due|never published")],
)
def test_a_changed_message_fails_the_load(engine: str, damage: str, complaint: str) -> None:
    with Damaging(damage) as broker, pytest.raises(LoadError, match=complaint):
        measure(arguments(["--port", str(broker.port), "--engine", engine, *LOAD]))


def test_a_run_ends_with_all_of_its_last_message() -> None:
    """Else the next run begins in the middle of a frame."""
    large = ["--size", "1000000", "--messages", "20", "--warmup", "5", "--consume", "--verify"]
    with brokers.alone() as cluster:
        for engine in ("auto", "python"):
            options = ["--port", str(cluster.brokers[0].port), "--engine", engine, *large]
            assert measure(arguments([*options, "--ack-every", "1", "--window", "1"]))["delivered"] == 20


@pytest.mark.skipif(native.compiled() is None, reason="no C compiler")
def test_amqp10_messages_are_counted_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("proton")
    more = ["--amqp10", "{}", "--prefetch", "30", "--ack-every", "7", "--durable", "--persistent"]
    with brokers.alone() as cluster:
        load = arguments(
            ["--port", str(cluster.brokers[0].port), *LOAD, *more, "--mix", "--connections", "2"]
        )
        result = measure(load)
        monkeypatch.setattr(generator, "content", lambda size: bytes(size))
        with pytest.raises(LoadError, match="another content"):
            measure(load)
    assert result["verified"]
    assert (result["messages"], result["delivered"], result["nacked"]) == (500, 500, 0)


RUN = Modules({}, "compiled", "")


def test_a_table_has_a_line_for_each_load_and_ratios_to_the_other_system() -> None:
    rows, every = [*MAIN[:3], *(row for row in BREADTH if row.link or row.backlog)], systems(RUN)
    results = {
        (row.name, system.name): Figures(
            rate=1000 * (at + 1), cpu_us=40 / (at + 1), p50=7, p99=9000, link=300
        )
        for row in rows
        for at, system in enumerate(every)
    }
    results["link-100-100", "understudy-pair"] = Figures(rate=1, cpu_us=1, p50=1, p99=1, link=342)
    del results[rows[1].name, "understudy-pair"]
    lines = tables(rows, every, results).splitlines()
    assert f"| {rows[0].title} | 1,000 | 2,000 | 2.00 | 40.0 | 20.0 | 0.50 | 7 / 9,000 | 7 / 9,000 |" in lines
    assert f"| {rows[1].title} | 3,000 | failed | - | 13.3 | failed | - | 7 / 9,000 |  |" in lines
    assert "| fanout exchange, queues: 100, window 100 | Understudy pair | 342 | 1.14 | 1.0 | 1.0 |" in lines
    pure = [line for line in lines if line.startswith(f"| {rows[2].title} | Understudy")]
    assert pure[0] == f"| {rows[2].title} | Understudy | 5,000 | 2,000 | 0.40 | 8.0 | 20.0 | 2.50 |"
    plot = svg(rows, every, results, "about")
    assert "failed" in plot
    ElementTree.fromstring(plot)


def test_pure_systems_are_there_beside_compiled_ones_only() -> None:
    assert [system.name for system in systems(RUN) if system.only] == [
        "understudy-pure",
        "understudy-pair-pure",
    ]
    assert not any(system.only for system in systems(Modules({}, "pure", "")))


def test_the_cost_of_ledger_and_metrics_is_compared_in_rounds() -> None:
    spent = {
        (MAIN[0].name, kind, name): values
        for kind in overhead.KINDS
        for name, values in (
            ("neither", [10.0, 20.0, 10.0]),
            ("ledger", [10.2, 20.4, 10.2]),
            ("both", [11.0, 22.0, 11.0] if kind == "Understudy" else [10.3, 20.6, 10.3]),
        )
    }
    first, second = overhead.table(MAIN[:1], spent).splitlines()[2:]
    more = "10.20 | +2.0 % (+2.0 to +2.0)"
    assert (
        first
        == f"| {MAIN[0].title} | Understudy | 10.00 | {more} | 11.00 | +10.0 % (+10.0 to +10.0) | missed |"
    )
    assert second.endswith("| 10.30 | +3.0 % (+3.0 to +3.0) | met |")


@pytest.mark.skipif(shutil.which("ss") is None, reason="no ss")
def test_octets_between_processes_are_those_that_were_sent() -> None:
    own = [os.getpid()]
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as one,
        listener.accept()[0],
    ):
        before = octets.sent(own, own)
        one.sendall(bytes(1234))
        assert octets.sent(own, own) - before == 1234
        assert octets.sent(own, [1]) == 0


def test_without_rabbitmq_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rabbitmq, "PROGRAMS", tmp_path)
    done = CliRunner().invoke(main, ["--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert done.output == "Error: no RabbitMQ here: apt install rabbitmq-server\n"
    assert not (tmp_path / "out").exists()
