"""The power switch: what the machines' fence agent talks to. It kills and starts containers, and writes it
down.

Owner: the `Site`; a thread of its own serves a Unix socket. What it does to a machine, the site does.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self


class Powered(Protocol):
    def power_off(self) -> None: ...
    def power_on(self) -> None: ...
    @property
    def powered(self) -> bool: ...


@dataclass(slots=True, frozen=True)
class Request:
    """Times are seconds since 1970."""

    asked: float
    done: float
    action: str
    machine: str
    by: str
    ok: bool


class PowerSwitch:
    """A context manager. `broken`: it refuses to switch anything, as a switch does that is not reached.
    `stays_off`: a machine that is fenced is left off, for a test to start it later.
    """

    def __init__(self, path: Path, machines: Mapping[str, Powered]) -> None:
        self._machines = machines
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(16)
        self._end = False
        self._threads: list[threading.Thread] = []
        self._one_at_a_time = threading.Lock()
        self.requests: list[Request] = []
        self.broken = False
        self.stays_off = False

    def __enter__(self) -> Self:
        self._start(self._serve)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(30)

    def fenced(self, since: float = 0.0) -> list[Request]:
        """The machines that were switched off by request since then."""
        return [
            each
            for each in self.requests
            if each.done >= since and each.ok and each.action in ("off", "reboot")
        ]

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while not self._end:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self._start(lambda caller=caller: self._answer(caller))  # type: ignore[misc]

    def _answer(self, caller: socket.socket) -> None:
        with caller:
            caller.settimeout(10)
            try:
                line = caller.makefile().readline().split()
                action, machine, by = line
                asked = time.time()
                answer = self._do(action, machine)
                if action in ("on", "off", "reboot"):
                    done = Request(asked, time.time(), action, machine, by, answer.startswith("ok"))
                    self.requests.append(done)
                caller.sendall(answer.encode() + b"\n")
            except (OSError, ValueError):
                return  # the caller is gone: perhaps it has been fenced itself

    def _do(self, action: str, name: str) -> str:
        if action == "monitor":
            return "failed the switch is broken" if self.broken else "ok"
        if action == "list":
            return "ok " + " ".join(self._machines)
        machine = self._machines.get(name)
        if machine is None:
            return f"failed there is no machine {name}"
        if action == "status":
            return "ok" if machine.powered else "off"
        if self.broken:
            return "failed the switch is broken"
        with self._one_at_a_time:
            if action in ("off", "reboot"):
                machine.power_off()
            if action == "on":
                machine.power_on()
        if action == "reboot" and not self.stays_off:
            self._start(
                machine.power_on
            )  # it has power at once; how long it takes to start is its own affair
        return "ok"
