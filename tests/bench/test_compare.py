"""`make bench-compare`: what it says of results, what it checks of messages, and what it needs."""

from __future__ import annotations

import socket
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import native
from bench.compare import rabbitmq
from bench.compare.__main__ import main
from bench.compare.report import Figures, svg, table
from bench.compare.rows import MAIN
from bench.compare.systems import SYSTEMS
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


def test_the_table_has_a_line_for_each_load_and_system() -> None:
    rows = MAIN[:2]
    results = {
        (row.name, system.name): Figures(rate=1000.0 * (at + 1), cpu_us=40.0 / (at + 1), p50=7, p99=9000)
        for row in rows
        for at, system in enumerate(SYSTEMS)
    }
    del results[rows[1].name, SYSTEMS[3].name]
    lines = table(rows, SYSTEMS, results).splitlines()
    assert len(lines) == 2 + len(rows) * len(SYSTEMS)
    assert lines[3] == (f"| {rows[0].title} | Understudy alone | 2,000 | 2.00 | 20.00 | 0.50 | 7 | 9,000 |")
    assert lines[-1].startswith(f"| {rows[1].title} | Understudy pair | failed |")
    plot = svg(rows, SYSTEMS, results, "about")
    assert "failed" in plot
    ElementTree.fromstring(plot)


def test_without_rabbitmq_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rabbitmq, "PROGRAMS", tmp_path)
    done = CliRunner().invoke(main, ["--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert done.output == "Error: no RabbitMQ here: apt install rabbitmq-server\n"
    assert not (tmp_path / "out").exists()
