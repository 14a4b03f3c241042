"""Signals to a real broker and to commands: what they end, and in how many words."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.understudy.serving import PATIENCE, serving


def test_a_node_without_tls_outlives_a_reload(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        node.process.send_signal(signal.SIGHUP)
        node.until("no files of TLS")
        assert node.stop() == 0


_INTERRUPTED_AT = """
import runpy, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = "understudy {arguments}".split()
runpy.run_module("understudy", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["click", "understudy.cli.main", "understudy.cli.node", "rich.table"])
def test_an_interrupt_while_a_command_is_loaded_is_no_traceback(module: str) -> None:
    assert _interrupted("status -b 127.0.0.1:1", module) == (130, "", "")


@pytest.mark.parametrize("module", ["understudy.config.settings", "understudy.server.daemon", "ssl"])
def test_an_interrupt_while_a_broker_is_loaded_is_no_traceback(module: str, tmp_path: Path) -> None:
    assert _interrupted(f"serve --listen 127.0.0.1:0 --data-dir {tmp_path}", module) == (130, "", "")


def _interrupted(arguments: str, module: str, before: str = "") -> tuple[int, str, str]:
    """Exit code, output, errors of a command that is interrupted when it looks for this module."""
    done = subprocess.run(
        [sys.executable, "-c", before + _INTERRUPTED_AT.format(module=module, arguments=arguments)],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


_INTERRUPTED_LAST = """
import atexit, runpy, signal, sys
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv = ["understudy", "--version"]
runpy.run_module("understudy", run_name="__main__")
"""


def test_an_interrupt_when_all_is_said_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_LAST], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout.startswith("understudy, version")


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    """As of a command that a script's shell runs in the background."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code, _, said = _interrupted("status -b 127.0.0.1:1", "click", ignoring)
    assert code == 1
    assert "cannot reach" in said
