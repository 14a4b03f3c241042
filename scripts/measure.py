"""Run a command, then print its wall time and the CPU seconds of all the processes that it started.

    python scripts/measure.py LABEL COMMAND [ARGUMENT ...]

The exit code is the command's; if a signal ended it, 128 and the signal's number. A process that outlives its
parent (a JVM, a broker whose test was killed) becomes a child of this one (prctl(2), PR_SET_CHILD_SUBREAPER),
so its CPU time counts as well. That needs Linux; elsewhere only what the parents waited for counts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 10.0
"""Seconds for the processes that end by themselves a moment after the command."""


def main(label: str, *command: str) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begun = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command as well
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    status = None
    while status is None:
        pid, ended = os.wait()
        if pid == child:
            status = ended
    wall = time.monotonic() - begun
    _reap(time.monotonic() + PATIENCE)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{label}: {wall // 60:.0f} min {wall % 60:.0f} s, {cpu:.0f} CPU-seconds", flush=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _reap(until: float) -> None:
    """Wait for the processes that are left, each of which counts once it has ended."""
    while time.monotonic() < until:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
