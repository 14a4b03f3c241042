"""The processes that run seeds."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

HANG = 60_000
"""Milliseconds after which a process is not going to end."""
RUN = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tests.simulation.harness.runner import begin_worker
pool = ProcessPoolExecutor(1, get_context("spawn"), begin_worker)
print(pool.submit(os.getpid).result(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
def test_no_worker_outlives_a_run_that_is_killed() -> None:
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            worker = os.pidfd_open(int(run.stdout.readline()))
        finally:
            run.kill()
    ended = select.poll()
    ended.register(worker, select.POLLIN)
    assert ended.poll(HANG)
    os.close(worker)
