"""Interrupts at a chosen step within the client kits, as a signal's handler makes them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dis import opmap
from pathlib import Path
from types import FrameType
from typing import Any

import understudy.client

_KIT = str(Path(understudy.client.__file__).parent)
_LOOKS = {
    code for name, code in opmap.items() if name in ("RESUME", "JUMP_BACKWARD") or name.startswith("CALL")
}
"""Behind these, and nowhere else, Python looks whether there was a signal."""
_NOP = opmap["NOP"] if sys.version_info >= (3, 12) else None
"""Since then it is in no `try`, though the place before it, where Python looks, is in one."""


def interrupted(at: int, what: Callable[[], None]) -> bool:
    """Do it, with a KeyboardInterrupt at the `at`-th place within the kit that allows one; was it met?"""
    places = 0
    before: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal places
        if not frame.f_code.co_filename.startswith(_KIT):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            code = frame.f_code.co_code[frame.f_lasti]
            looks = before.get(frame) in _LOOKS and code != _NOP
            before[frame] = code
            places += looks
            if looks and places == at:
                raise KeyboardInterrupt
        elif event == "return":
            before.pop(frame, None)
        return trace

    sys.settrace(trace)
    try:
        what()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def void(_number: int) -> None:
    """What a callable that returns nothing makes of one that does."""
