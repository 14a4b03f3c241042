"""An honest client beside an attack: messages at a steady rate, and how long each waits for its confirm."""

from __future__ import annotations

import select
import time
from collections import deque
from dataclasses import dataclass, field

from bench.wire import METHOD, Wire, WireError, publish_frames

RATE = 50
"""Messages a second."""
_ACK = b"\0\x3c\0\x50"
_QUEUE = "victim"
_PATIENCE = 60.0


@dataclass(slots=True)
class Seen:
    """Waits in milliseconds."""

    waits: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Victim:
    """One connection with one queue, opened before the attack. Its messages are transient, so that no wait is
    the disk's; each confirm waits for the backup."""

    def __init__(self, host: str, port: int, user: str, password: str) -> None:
        self._wire = Wire.open(host, port, user=user, password=password, timeout=_PATIENCE)
        self._wire.declare(_QUEUE, durable=False)
        self._wire.confirm_select()
        self._tag = 0
        self._message = publish_frames(1, _QUEUE, bytes(256), persistent=False)

    def run(self, seconds: float) -> Seen:
        """Each message leaves when it is due, whether those before it are confirmed or not."""
        seen = Seen()
        due: deque[float] = deque(time.monotonic() + n / RATE for n in range(int(seconds * RATE)))
        unconfirmed: deque[float] = deque()
        while due or unconfirmed:
            until = due[0] if due else time.monotonic() + _PATIENCE
            ready, _, _ = select.select([self._wire.socket], [], [], max(0.0, until - time.monotonic()))
            if ready:
                for _ in range(self._confirmed()):
                    seen.waits.append((time.monotonic() - unconfirmed.popleft()) * 1000)
            elif not due:
                raise WireError(f"no confirm for {_PATIENCE:g} s")
            while due and due[0] <= time.monotonic():
                unconfirmed.append(due.popleft())
                self._wire.socket.sendall(self._message)
        return seen

    def close(self) -> None:
        self._wire.close()

    def _confirmed(self) -> int:
        """Messages that the next frames confirm."""
        before = self._tag
        while True:
            kind, payload = self._wire.read_frame()
            if kind == METHOD and payload.startswith(_ACK):
                self._tag = int.from_bytes(payload[4:12], "big")
            if not self._wire.held:
                return self._tag - before
