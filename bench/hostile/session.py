"""Whose turn it is on the cores.

With autogroup, Linux divides the cores between sessions first, and nice counts within one session only. So
victim, brokers and attack stay in one: no process here calls setsid. `--ahead` gives them one of their own,
and puts it before the others where that is allowed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")
_FIRST = "-19"


def ahead(command: list[str]) -> int:
    """Run `command` in a session of its own; its exit code. Signals of the terminal are passed on to it."""
    with subprocess.Popen(command, start_new_session=True) as child:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: child.send_signal(signal.SIGINT))
        try:
            Path(f"/proc/{child.pid}/autogroup").write_text(_FIRST)
        except OSError as error:
            print(f"not ahead of other sessions: {error.strerror}", file=sys.stderr)
        return child.wait()


def standing() -> str:
    """One line: what else the cores had to do, and how this session stands to the others."""
    try:
        group = _AUTOGROUP.read_text().split()[-1]
    except (OSError, IndexError):
        group = "none"
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, load {load:.1f}, nice of this session (autogroup): {group}"
