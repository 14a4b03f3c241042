"""Holds conversations with a real process: a broker with a data folder, and a client beside that must not
notice."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.join import Publisher
from bench.wire import publish_frames
from tests.hostile.fuzz.machines import Harm, drawn
from tests.ports import free_ports

ANSWER = 0.05
"""Seconds to wait for what the broker says after a conversation."""


class Process:
    """One broker, and a connection that publishes with confirms."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port, self._log = port, folder / "log"
        command = [sys.executable, "-m", "understudy", "serve", "--listen", f"127.0.0.1:{port}"]
        command += ["--data-dir", str(folder / "data"), "--set", f"broker.control={folder / 'control'}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while True:
            try:
                self._victim = Publisher(port, 1)
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise Harm(f"the broker does not start: {self._log.read_text()[-500:]}") from None
        self._victim.wire.declare("victim", durable=True)
        self._message = publish_frames(1, "victim", b"m", persistent=True)
        self._looked = 0

    def hold(self, protocol: str, seed: int) -> None:
        """Raises Harm."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 10) as talker:
            for piece in drawn(protocol, seed):
                talker.sendall(piece)
            while select.select([talker], [], [], ANSWER)[0] and talker.recv(65536):
                pass
        self._victim.send(self._message, 1)
        self._victim.finish()
        text = self._log.read_bytes()[self._looked :].decode(errors="replace")
        self._looked += len(text.encode())
        if "Traceback" in text or "AMQP:" in text:
            raise Harm(text[-2000:])

    def stop(self) -> None:
        """Raises Harm if it does not end well."""
        self._process.terminate()
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise Harm("the broker does not end") from None
        if code:
            raise Harm(f"the broker has ended with {code}: {self._log.read_text()[-500:]}")


@contextlib.contextmanager
def process() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="understudy-fuzz-") as folder:
        broker = Process(Path(folder), free_ports(1)[0])
        try:
            yield broker
        finally:
            broker.stop()
