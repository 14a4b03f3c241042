"""A machine of a site: a container, its plug, its processes, its network.

Owner: `Site`. The switch's thread may switch it off at any moment.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cluster import configuration
from tests.cluster.disk import Disk

PATIENCE = 60.0
"""Seconds that anything may take on a busy machine before it counts as hung."""


class Machine:
    """One container: a machine with a disk for the broker's data, and a plug in the switch."""

    def __init__(self, name: str, container: Any, disk: Disk | None, logs: Path) -> None:
        self.name = name
        self.has_disk = disk
        self.logs = logs
        self._container = container
        """A testcontainers DockerContainer, started."""

    @property
    def address(self) -> str:
        return configuration.ADDRESSES[self.name]

    @property
    def disk(self) -> Disk:
        assert self.has_disk is not None, f"{self.name} has no disk for data"
        return self.has_disk

    # -- power

    @property
    def wrapped(self) -> Any:
        return self._container.get_wrapped_container()

    @property
    def powered(self) -> bool:
        self.wrapped.reload()
        return str(self.wrapped.status) in ("running", "paused")

    def power_off(self) -> None:
        """As if the plug had been pulled: nothing is stopped, nothing flushed. Also if it is frozen, or waits
        for its disk: then it dies before it does anything more.
        """
        if not self.powered:
            return
        for pid in self.pids(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.wrapped.status == "paused":
            self.wrapped.unpause()
        if self.has_disk is not None:
            self.has_disk.power_cut()
        self.wrapped.wait(timeout=PATIENCE)

    def power_on(self) -> None:
        if not self.powered:
            self.wrapped.start()

    def remove(self) -> None:
        """Whatever state it is in."""
        with suppress(Exception):
            self.power_off()
        self._container.stop()

    def freeze(self) -> None:
        self.wrapped.pause()

    def thaw(self) -> None:
        self.wrapped.reload()
        if self.wrapped.status == "paused":
            self.wrapped.unpause()

    # -- commands

    def run(self, *command: str, check: bool = True) -> tuple[int, str]:
        """As root, in the container: exit code and output with errors."""
        done = self.wrapped.exec_run(list(command))
        code, text = int(done.exit_code), done.output.decode(errors="replace").strip()
        assert code == 0 or not check, f"{self.name}: {' '.join(command)}: {code}: {text[-800:]}"
        return code, text

    def pids(self, pattern: str) -> list[int]:
        """Of processes whose command line matches, by this host's numbers."""
        table = self.wrapped.top(ps_args="-eo pid,args")
        return [int(pid) for pid, command in table["Processes"] if re.search(pattern, command)]

    def kill(self, pattern: str, number: signal.Signals = signal.SIGKILL) -> float:
        """When it was done, in seconds since 1970."""
        pids = self.pids(pattern)
        assert pids, f"nothing on {self.name} looks like {pattern}"
        at = time.time()
        for pid in pids:
            os.kill(pid, number)
        return at

    def kill_when_seen(self, words: str) -> float:
        """As soon as there is a process whose command line has these words: when it was killed."""
        self.wrapped.reload()
        inside = os.readlink(f"/proc/{self.wrapped.attrs['State']['Pid']}/ns/pid")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if words in command and os.readlink(folder / "ns" / "pid") == inside:
                        os.kill(int(folder.name), signal.SIGKILL)
                        return time.time()
        raise AssertionError(f"no {words} was seen on {self.name}")

    # -- its network

    def drop(self, *rules: str) -> None:
        """Each rule, in words of nftables, drops what it matches: `in ip saddr 198.51.100.12`. They are gone
        after `mend`, and with the power.
        """
        table = "add table inet cut; add chain inet cut in { type filter hook input priority 0; };"
        table += " add chain inet cut out { type filter hook output priority 0; };"
        self._nft(table + "; ".join(f"add rule inet cut {rule} drop" for rule in rules))

    def mend(self) -> None:
        if self.powered:
            with suppress(AssertionError):  # it was rebooted, and has no rules any more
                self._nft("flush table inet cut")

    def _nft(self, rules: str) -> None:
        self.wrapped.reload()
        pid = self.wrapped.attrs["State"]["Pid"]
        done = subprocess.run(
            ["nsenter", f"--net=/proc/{pid}/ns/net", "nft", rules], capture_output=True, text=True
        )
        assert done.returncode == 0, f"nft: {done.stderr}"
