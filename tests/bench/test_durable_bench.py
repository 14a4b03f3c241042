"""The durability benchmark measures what it says: its probe, its loads, its tables, and small real runs."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import brokers, native
from bench.durable import __main__ as durable
from bench.durable import probe as durable_probe
from bench.durable import report
from bench.durable.nodes import bare_sync_ms, connected, depth, file_system, fill, size_of
from bench.durable.rejoin import link_bytes_of, measured
from bench.durable.report import Figure, Findings
from bench.durable.space import EACH, Sample, leave, over_time
from bench.durable.start import case
from bench.generator import arguments, measure
from tests.bench.echo_broker import EchoBroker

QOS, DELETE = b"\0\x3c\0\x0a", b"\0\x32\0\x28"


class Asked(EchoBroker):
    """Notes the methods it is asked; `before_answer` is called with the number of each basic.qos."""

    def __init__(self, before_answer: Callable[[int], None] = lambda number: None) -> None:
        super().__init__()
        self.questions = 0
        self.deletes = 0
        self.before_answer = before_answer

    def method(self, connection: socket.socket, payload: bytes) -> None:
        if payload.startswith(QOS):
            self.questions += 1
            self.before_answer(self.questions)
        self.deletes += payload.startswith(DELETE)
        super().method(connection, payload)


@pytest.mark.skipif(native.compiled(durable_probe.SOURCE) is None, reason="no C compiler")
def test_every_question_of_a_standstill_is_late_and_the_twin_is_not() -> None:
    stalled_at, lasts, enough = 50, 60, 300
    resumed = threading.Event()
    read_end, write_end = os.pipe()
    ended = threading.Event()

    def twin_answers(number: int) -> None:
        if number == stalled_at + lasts:
            resumed.set()
        if number >= enough and not ended.is_set():
            ended.set()
            os.close(write_end)

    def stands_still(number: int) -> None:
        if number == stalled_at:
            assert resumed.wait(20)

    with Asked(stands_still) as stalled, Asked(twin_answers) as twin:
        found = durable_probe.measure([stalled.port, twin.port], 1000, read_end)
    os.close(read_end)
    first, second = found["brokers"]
    assert found["ticks"] == first["answers"] == second["answers"] == twin.questions == stalled.questions
    assert first["skipped"] == second["skipped"] == 0
    # One question was held for 60 ticks, those behind it for 59, 58 ...: a fifth of all is late.
    assert first["longest"] >= lasts - 1
    assert first["p99"] >= lasts / 2 > first["p50"]


def test_leaves_every_thousandth_unacked_and_acks_all_others() -> None:
    messages = 3 * EACH + 7
    with EchoBroker() as broker:
        leave(broker.port, messages).close()
    assert broker.published == broker.delivered == messages
    assert broker.ack_frames == [tag for tag in range(1, messages + 1) if tag % EACH]


@pytest.mark.parametrize(("options", "deletes"), [(["--queue", "mine"], 0), ([], 1)])
def test_the_generator_deletes_its_own_queue_only(options: list[str], deletes: int) -> None:
    with Asked() as broker:
        measure(arguments(["--port", str(broker.port), "--messages", "100", "--engine", "python", *options]))
    assert broker.deletes == deletes


def findings() -> Findings:
    rows: list[list[Figure | str]] = [["one", Figure(5.25, 2, most=5)], ["other", Figure(4, most=5)]]
    return Findings("start", "how long", ["load", "seconds"], rows, ["A note."])


def test_a_figure_over_its_target_is_marked() -> None:
    assert findings().missed == ["start: one: seconds 5.25"]
    assert "| one | **5.25** |\n| other | 4 |" in findings().as_markdown()
    assert Figure(59_000, least=60_000).missed and not Figure(61_000, least=60_000).missed
    assert not Figure(None, most=1).missed


def test_a_table_replaces_only_its_own_place_in_the_paper(tmp_path: Path) -> None:
    paper = tmp_path / "README.md"
    paper.write_text("before\n<!-- durable: start -->\nold\n<!-- end of start -->\nafter\n")
    findings().write(paper)
    assert (text := paper.read_text()).startswith("before\n<!-- durable: start -->\n*start*: how long.\n")
    assert text.endswith("A note.\n<!-- end of start -->\nafter\n") and "old" not in text
    paper.write_text("no marks\n")
    with pytest.raises(ValueError, match="no marks for start"):
        findings().write(paper)
    assert paper.read_text() == "no marks\n"


def test_the_readme_has_a_place_for_every_part(tmp_path: Path) -> None:
    paper = tmp_path / "README.md"
    paper.write_text(report.README.read_text())
    for part in durable.PARTS:
        Findings(part, "title", ["load"]).write(paper)


def test_bytes_on_the_link_are_those_of_one_process_to_one_peer() -> None:
    text = "\n".join(
        f'0 0 127.0.0.1:{mine} {peer} users:(("python",pid={pid},fd=9)) '
        f"cubic bytes_sent:7 bytes_received:{got}"
        for mine, peer, pid, got in [
            (40001, "127.0.0.1:5672", 71, 100),
            (40002, "127.0.0.1:5672", 71, 30),
            (40003, "127.0.0.1:5673", 71, 9000),
            (40004, "127.0.0.1:5672", 7, 9000),
        ]
    )
    assert link_bytes_of(text, 71, "127.0.0.1:5672") == (130, 14)
    assert link_bytes_of(text, 72, "127.0.0.1:5672") == (None, None)


def test_sizes_over_time_have_the_first_and_the_last() -> None:
    samples = [Sample(at, at * 2**20, 0, 0) for at in range(100)]
    said = over_time(samples, points=4).split(", ")
    assert said == ["0 at 0 s", "33 at 33 s", "66 at 66 s", "99 at 99 s"]
    assert over_time(samples[:2]) == "0 at 0 s, 1 at 1 s"


def test_names_the_file_system_and_times_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(bytes(1000))
    assert size_of(tmp_path) == 1000
    assert file_system(Path("/proc")) == "proc on proc"
    assert " on " in file_system(tmp_path)
    half, most = bare_sync_ms(tmp_path, times=5)
    assert 0 < half <= most


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_start_counts_what_came_back(how: str, tmp_path: Path) -> None:
    options = argparse.Namespace(data=tmp_path, cold=True)

    def load(port: int) -> tuple[str, int]:
        fill(port, "deep", 1234, 256, distinct=how == "stop")
        return "deep", 1234

    row = case(options, "1,234 messages", how, load, None)
    assert isinstance(seconds := row[1], Figure) and seconds.value and 0 < seconds.value < 60
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_brings_back_too_few_is_an_error(tmp_path: Path) -> None:
    def load(port: int) -> tuple[str, int]:
        fill(port, "deep", 1234, 256, distinct=False)
        return "deep", 1235

    options = argparse.Namespace(data=tmp_path, cold=True)
    with pytest.raises(brokers.BrokerError, match="1,234 of 1,235 messages came back"):
        case(options, "1,235 messages", "kill", load, None)


def test_a_backup_returns_with_every_message() -> None:
    with brokers.pair() as cluster:
        primary, backup = cluster.brokers
        row = measured(cluster, 500)
        assert primary.process.returncode == -signal.SIGKILL
        wire = connected(backup.port)
        assert depth(wire, "deep") == 1500
        wire.close()
    assert all(isinstance(figure, Figure) and figure.value is not None for figure in row[:5])
