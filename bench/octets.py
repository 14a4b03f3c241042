"""The octets that processes have sent each other by TCP, as the kernel counts them: `ss` of iproute2."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection

LISTING = ["ss", "-HtinpO", "state", "established"]
_SOCKET = re.compile(r"^\S+\s+\S+\s+(?P<own>\S+)\s+(?P<peer>\S+)\s")
_PID = re.compile(r"pid=(\d+)")
_SENT = re.compile(r"bytes_sent:(\d+)")


class NoCounters(Exception):
    """`ss` is not there, or does not say what a socket has sent; the text says so."""


def sent(source: Collection[int], target: Collection[int]) -> int:
    """By the processes `source` to the processes `target`, over the connections that are open now. Raises
    NoCounters."""
    try:
        listed = subprocess.run(LISTING, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        raise NoCounters("no octets of the replication link: apt install iproute2") from None
    return counted(listed.stdout, source, target)


def counted(listed: str, source: Collection[int], target: Collection[int]) -> int:
    """The same of the output of `LISTING`."""
    ours: dict[tuple[str, str], int] = {}
    theirs: set[tuple[str, str]] = set()
    for line in listed.splitlines():
        ends = _SOCKET.match(line)
        pids = {int(pid) for pid in _PID.findall(line)}
        if not ends:
            continue
        if pids & set(source):
            octets = _SENT.search(line)
            ours[ends["own"], ends["peer"]] = int(octets.group(1)) if octets else 0
        if pids & set(target):
            theirs.add((ends["peer"], ends["own"]))
    return sum(octets for ends, octets in ours.items() if ends in theirs)
