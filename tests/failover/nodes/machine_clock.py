"""Sets the wall clock of one running process forwards or back, as if somebody had set its machine's clock.

libfaketime reaches only programs that ask libc for the time. etcd is written in Go, and calls the kernel's
vDSO itself. So this replaces `clock_gettime` in the process's own copy of the vDSO. The replacement asks the
kernel, and adds an offset to CLOCK_REALTIME. CLOCK_MONOTONIC stays as it is, as when a clock is set.

Source: vdso(7); x86-64 psABI, appendix A.2.
"""

from __future__ import annotations

import os
import platform
import signal
import struct
import threading
import time
from pathlib import Path

import pytest

from tests.failover.nodes.cluster import PATIENCE

CODE = bytes.fromhex(
    "b8e4000000"  # mov eax, 228 (clock_gettime)
    "0f05"  # syscall
    "85ff"  # test edi, edi: is it CLOCK_REALTIME?
    "750a"  # jne to ret
    "488b0d0e000000"  # mov rcx, [offset]
    "48010e"  # add [rsi], rcx: seconds
    "c3"  # ret
).ljust(32, b"\xcc")
"""The offset follows it, in seconds, as a signed integer of 64 bits."""
SYMBOL = b"__vdso_clock_gettime"
_GLANCE = 0.01


def set_machine_clock(pid: int, seconds: int) -> None:
    """From now on it is so many seconds later for this process than it is. Skips the test where that cannot
    be done."""
    if platform.machine() != "x86_64":
        pytest.skip("needs x86-64, to set the clock of a single process")
    begin, end = _vdso(pid)
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    except PermissionError as error:
        pytest.skip(f"may not set the clock of another process: {error}")
    try:
        function = begin + _function(os.pread(memory, end - begin, begin))
        _stop_outside(pid, range(begin, end))
        try:
            os.pwrite(memory, CODE + struct.pack("<q", seconds), function)
        finally:
            os.kill(pid, signal.SIGCONT)
    finally:
        os.close(memory)


def _vdso(pid: int) -> tuple[int, int]:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            begin, end = line.split()[0].split("-")
            return int(begin, 16), int(end, 16)
    pytest.skip("this kernel gives processes no vDSO")


def _function(image: bytes) -> int:
    """Where it begins in the ELF image of the vDSO."""
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, headers + size * at) for at in range(count)]
    symbols = next(section for section in sections if section[1] == 11)  # SHT_DYNSYM
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", image, at)
        if image[names + name :].startswith(SYMBOL + b"\0"):
            assert length >= len(CODE) + 8, "the vDSO's function is too short to be replaced"
            return int(value)
    pytest.skip("the vDSO of this kernel has no clock_gettime")


def _stop_outside(pid: int, code: range) -> None:
    """Stop the process while none of its threads runs what is to be replaced."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while True:
        os.kill(pid, signal.SIGSTOP)
        while (threads := _program_counters(pid)) is None:
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            pause.wait(_GLANCE)
        if not any(counter in code for counter in threads):
            return
        os.kill(pid, signal.SIGCONT)
        assert time.monotonic() < deadline, f"process {pid} is always asking for the time"
        pause.wait(_GLANCE)


def _program_counters(pid: int) -> list[int] | None:
    """Of all threads; None while one of them still runs."""
    told = [(task / "syscall").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    return None if any(words == ["running"] for words in told) else [int(words[-1], 16) for words in told]
