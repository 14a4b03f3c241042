"""Ctrl-C while Spark starts or works: one line, and no process is left behind."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.ledger.writer import LedgerWriter

PATIENCE = 120.0
_INTERRUPTED_WHILE_THE_JVM_STARTS = """
import runpy, signal, sys
import pyspark.java_gateway as gateway
popen = gateway.Popen
def start(*arguments, **options):
    made = popen(*arguments, **options)
    print(made.pid, flush=True)
    gateway.time = Clock
    return made
class Clock:
    def sleep(seconds):
        signal.raise_signal(signal.SIGINT)
gateway.Popen = start
runpy.run_module("understudy", run_name="__main__")
"""


@pytest.mark.parametrize("command", [("reconcile",), ("report",)])
def test_an_interrupt_while_spark_starts_leaves_no_jvm_behind(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    LedgerWriter(str(tmp_path), "p", "producer", incarnation=1).close()
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED_WHILE_THE_JVM_STARTS, *command, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert _ends(int(process.stdout.readline())), "the JVM lives on"
        assert process.stderr.read().lstrip() == "understudy: interrupted\n"
        assert process.wait(PATIENCE) == 130


_INTERRUPTED_WHILE_THE_JVM_WORKS = """
import logging, sys
from understudy.cli.main import run
from understudy.cli.reconcile import driven
def work(progress):
    try:
        raise KeyboardInterrupt
    finally:
        logging.exception("KeyboardInterrupt while sending command.")  # as py4j does
sys.exit(run(lambda **_: driven(work, print, ValueError)))
"""


def test_an_interrupt_while_spark_works_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_WHILE_THE_JVM_WORKS],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "understudy: interrupted\n"


def _ends(process: int) -> bool:
    """Whether the process ends within PATIENCE."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(watched, selectors.EVENT_READ)
            return bool(selector.select(PATIENCE))
    finally:
        os.close(watched)
