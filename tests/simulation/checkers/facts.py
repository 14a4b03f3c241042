"""Words and readings that several checkers share."""

from __future__ import annotations

import struct

from tests.simulation.harness.inspection import medium
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

SERVING = frozenset({"active", "recovering"})
"""Roles of a node that clients may use."""

_FRAME_MAGIC = b"\xf5UB\x0a"
_FRAME_HEAD = struct.Struct("<IIIQQQ")


def position_on_disk(disk: VirtualDisk, before_epoch: int) -> tuple[int, int]:
    """The newest (epoch, n) of any batch in the store for good, of epochs before that; (0, 0) for none."""
    newest = (0, 0)
    for path, data in medium(disk).items():
        if "/store/" not in path:
            continue
        at = data.find(_FRAME_MAGIC)
        while at >= 0 and at + 4 + _FRAME_HEAD.size <= len(data):
            _, _, length, epoch, n, _ = _FRAME_HEAD.unpack_from(data, at + 4)
            if epoch < before_epoch and length <= len(data):
                newest = max(newest, (epoch, n))
            at = data.find(_FRAME_MAGIC, at + 4 + _FRAME_HEAD.size + (length if length < len(data) else 0))
    return newest
