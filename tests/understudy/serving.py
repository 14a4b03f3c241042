"""A real broker on its own, in a process of its own, for tests of what an operator sees of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from understudy.shared.addresses import HostPort

PATIENCE = 30.0


class Serving:
    """`amqp` and `http`: where it listens. Its log is read as far as the test has asked for it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self.amqp = self._address(self.until("AMQP on "))
        self.http = self._address(self.until("HTTP on http://"))
        self.until("(node-started)")

    def until(self, words: str) -> str:
        """The next line of the log that has them."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if words in line:
                return line
        raise AssertionError(f"ended without {words!r}: {''.join(self.log[-20:])}")

    def stop(self) -> int:
        """By SIGTERM; the exit code, and all of its log is there."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        self.log += self.process.stderr.readlines()
        return self.process.wait(PATIENCE)

    @staticmethod
    def _address(line: str) -> HostPort:
        host, _, port = line.split()[-2].removeprefix("http://").rpartition(":")
        return HostPort(host, int(port))


@contextmanager
def serving(data_dir: Path, *options: str, prefix: Sequence[str] = ()) -> Iterator[Serving]:
    """`prefix`: a command that becomes the one that follows it."""
    command = [*prefix, sys.executable, "-m", "understudy", "serve", "--data-dir", str(data_dir)]
    command += ["--name", "node", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNDERSTUDY_")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Serving(process)
        finally:
            process.kill()
