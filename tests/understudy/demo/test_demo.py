"""The parts of the demo: shares and routes, its folder, and that no child outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from understudy.cli.demo import MARK, clear, demo, prepare
from understudy.cli.options import Wrong
from understudy.client import Delivery
from understudy.demo.plain_client import Plain
from understudy.demo.processes import Children
from understudy.demo.star_worker import Books, Task
from understudy.demo.workload import (
    BURST,
    CONSUMERS,
    PLAIN_QUEUE,
    PUBLISHERS,
    QUEUES,
    queues_of,
    route_of,
    shares,
)
from understudy.report import beside

SLEEPER = 'import sys, time; print(\'{"event": "up"}\', flush=True); time.sleep(600)'


@pytest.mark.parametrize("messages", [1, 7, 300, 60_000, 200_000])
def test_the_shares_add_up(messages: int) -> None:
    found = shares(messages, 4000.0)
    assert sum(count for count, _ in found.values()) == messages
    assert set(found) == {*PUBLISHERS, PLAIN_QUEUE}
    assert found[PLAIN_QUEUE][0] <= 1000


def test_every_queue_has_one_consumer_and_some_publisher() -> None:
    consumed = [queue for queues in CONSUMERS.values() for queue in queues]
    assert sorted([*consumed, PLAIN_QUEUE]) == sorted(QUEUES)
    assert sorted(queue for name in PUBLISHERS for queue in queues_of(name)) == sorted(consumed)


def test_routes_come_in_bursts() -> None:
    route = route_of("orders")
    keys = [route(index).routing_key for index in range(3 * BURST)]
    assert keys == ["orders.eu"] * BURST + ["orders.us"] * BURST + ["orders.eu"] * BURST


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_that_is_no_number_is_wrong(rate: str) -> None:
    done = CliRunner().invoke(demo, ["--rate", rate], standalone_mode=False)
    assert isinstance(done.exception, Wrong) and rate in str(done.exception)


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(Wrong, match="not empty"):
        prepare(folder)
    clear(folder)
    assert (folder / "thesis.txt").exists()
    with pytest.raises(Wrong, match="cannot use"):
        prepare(folder / "thesis.txt" / "below")


def test_a_demos_own_folder_is_cleared_and_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    prepare(folder)
    (folder / "clients").mkdir()
    (folder / "clients" / "x.ledger.jsonl").touch()
    report = folder / "report.html"
    report.touch()
    beside(report).touch()
    clear(folder, but=(report, beside(report)))
    assert sorted(entry.name for entry in folder.iterdir()) == [MARK, "report.html", "report.json"]
    prepare(folder)
    assert [entry.name for entry in folder.iterdir()] == [MARK]


def alive(pid: int) -> bool:
    """Zombies are not: they only wait to be asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_children_are_ended_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER
    )
    (tmp_path / "meek.py").write_text(SLEEPER)
    children = Children(tmp_path)
    children._environment["PYTHONPATH"] = str(tmp_path)
    with pytest.raises(ZeroDivisionError), children:
        started = [children.start(name, [name], events=True) for name in ("stubborn", "meek")]
        for _ in started:
            children.events.get(timeout=30)
        raise ZeroDivisionError
    assert [child.exit_code for child in started] == [-signal.SIGKILL, -signal.SIGTERM]
    assert children.running == []


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "meek.py").write_text(SLEEPER)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time, pathlib\n"
            "from understudy.demo.processes import Children\n"
            f"children = Children(pathlib.Path({str(tmp_path)!r}))\n"
            f"children._environment['PYTHONPATH'] = {str(tmp_path)!r}\n"
            "child = children.start('meek', ['meek'], events=True)\n"
            "children.events.get(timeout=30)\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(600)\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    deadline = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < deadline, "the child lives on"


def test_the_plain_client_counts_what_it_lost_and_doubled() -> None:
    plain = Plain("127.0.0.1:1", QUEUES[PLAIN_QUEUE])
    plain._published = 3
    plain._confirmed = {"0", "1", "2"}
    plain._seen.update({"0": 1, "1": 3})
    assert plain.counts() == {"published": 3, "confirmed": 3, "received": 4, "duplicated": 2, "lost": 1}


def test_a_consumer_of_the_star_knows_what_it_lost_got_twice_or_late() -> None:
    task = Task("consumer", "oslo", "", "prices", "", ["a", "b"], wants=["a"], publishers={"t": 3 * BURST})
    assert task.due() == 2 * BURST
    books = Books(task)
    due = [number for number in range(3 * BURST) if task.is_due(number)]
    for number in (*due[1:5], due[7], due[6], due[7], *due[8:]):  # without 0 and 5; 6 late; 7 twice
        books.take(delivery(f"t {number} {time.time()}"))
    books.take(delivery(f"t {due[9]} {time.time()}", redelivered=True))
    result = books.result()
    assert result["lost"] == {"t": [due[0], due[5]]} and result["twice"] == {"t": [due[7]]}
    assert (result["received"], result["redelivered"], result["disordered"]) == (2 * BURST - 2, 1, 1)


def delivery(body: str, *, redelivered: bool = False) -> Delivery:
    return Delivery(body.encode(), {}, redelivered, "prices", "a", 1, 1, None)
