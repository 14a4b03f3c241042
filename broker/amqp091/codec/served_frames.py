"""Content frames as a 0-9-1 client gets them: for its channel and frame_max, and in its protocol.

The only module of this package that knows of messages published over AMQP 1.0.
"""

from __future__ import annotations

from broker.amqp091.codec.frames import reframe
from broker.amqp10.conversion import as_0_9_1, is_stored


def served_frames(raw: bytes, channel: int, frame_max: int) -> bytes:
    """The stored frames, for `channel`."""
    return reframe(as_0_9_1(raw) if is_stored(raw) else raw, channel, frame_max)
