"""Does the disk still answer? A disk that hangs is a pipe that nobody reads: opening it does not return."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from understudy.http.node.disk_probe import FILE, DiskProbe


def wait_for_probe() -> None:
    for thread in threading.enumerate():
        if thread.name == "disk-probe":
            thread.join(10)
            assert not thread.is_alive()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_disk_that_answers(tmp_path: Path) -> None:
    clock = Clock()
    probe = DiskProbe(tmp_path, clock)
    assert probe.look() == {"stalled_for": 0.0, "latency": None, "failed": None}
    wait_for_probe()
    clock.now += 5
    found = probe.look()
    assert (found["stalled_for"], found["latency"], found["failed"]) == (0.0, 0.0, None)
    wait_for_probe()
    assert (tmp_path / FILE).read_bytes() == b"probe\n"


def test_a_disk_that_hangs_and_comes_back(tmp_path: Path) -> None:
    clock = Clock()
    os.mkfifo(tmp_path / FILE)
    probe = DiskProbe(tmp_path, clock)
    probe.look()
    clock.now += 7
    assert probe.look()["stalled_for"] == 7
    clock.now += 1
    assert probe.look()["stalled_for"] == 8
    assert sum(thread.name == "disk-probe" for thread in threading.enumerate()) == 1
    reader = os.open(tmp_path / FILE, os.O_RDONLY)
    wait_for_probe()
    assert probe.look()["latency"] == 8
    wait_for_probe()
    os.close(reader)


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    probe = DiskProbe(tmp_path, Clock())
    probe.look()
    wait_for_probe()
    assert "Is a directory" in str(probe.look()["failed"])


def test_the_stores_own_wait_counts_too(tmp_path: Path) -> None:
    clock = Clock()
    probe = DiskProbe(tmp_path, clock, lambda: 98.0)
    assert probe.look()["stalled_for"] == 2.0
    wait_for_probe()
