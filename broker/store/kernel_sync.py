"""fdatasync without a thread: Linux's native asynchronous I/O, with an eventfd that tells when it is done.

A thread that waits for the disk competes with the broker's thread for the interpreter twice for each sync.
For one message at a time that costs more than the sync itself. Owner: `LoopSync`, on the broker's thread.

The kernel's interface is io_setup(2), io_submit(2) and io_getevents(2), with the command IOCB_CMD_FDSYNC of
Linux 4.18. The C library has no functions for these calls, so they are made by number.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from contextlib import suppress

_CALLS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}
"""Numbers of io_setup, io_getevents and io_submit, by machine (`unistd.h`)."""
_FDSYNC = 3
_WITH_EVENTFD = 1
_IOCB = struct.Struct("<QIIHhiQQqQII")
"""struct iocb: data, key and flags of the write, command, priority, descriptor, buffer, length, offset,
reserved, flags, eventfd."""
_MAGIC = 0xA10A10A1
_EVENT = struct.Struct("<QQqq")
"""struct io_event: data, the iocb's address, result, second result."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Ring(ctypes.Structure):
    """The head of struct aio_ring, which the kernel shows at the address of the context."""

    _fields_ = (
        ("id", ctypes.c_uint), ("events", ctypes.c_uint), ("head", ctypes.c_uint), ("tail", ctypes.c_uint),
        ("magic", ctypes.c_uint),
    )  # fmt: skip


class KernelSync:
    """One sync at a time. `fileno()` is readable when it is done. Lives as long as its process."""

    def __init__(self) -> None:
        """Raises OSError if the machine cannot do this."""
        calls = _CALLS.get(platform.machine())
        if calls is None or sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise OSError(errno.ENOSYS, "asynchronous I/O is not known here")
        setup, self._get_events, self._submit = map(ctypes.c_long, calls)
        self._system = ctypes.CDLL(None, use_errno=True).syscall
        self._system.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._one, self._zero = ctypes.c_long(1), ctypes.c_long(0)
        self._control = ctypes.create_string_buffer(_IOCB.size)
        self._controls = ctypes.byref(ctypes.c_void_p(ctypes.addressof(self._control)))
        self._event = ctypes.create_string_buffer(_EVENT.size)
        self._at_once = ctypes.byref(_Timespec(0, 0))
        self._call(setup, self._one, ctypes.byref(self._context))
        ring = _Ring.from_address(self._context.value)
        self._ring = ring if ring.magic == _MAGIC else None
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._eventfd

    def tell(self) -> None:
        """Make `fileno()` readable, from any thread."""
        os.eventfd_write(self._eventfd, 1)

    def submit(self, descriptor: int) -> None:
        """Begin to sync a file. Raises OSError if that cannot be done in this way."""
        _IOCB.pack_into(
            self._control, 0, 0, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _WITH_EVENTFD, self._eventfd
        )
        self._call(self._submit, self._context, self._one, self._controls)

    @property
    def done(self) -> bool:
        """Whether `result` may have something to say. Costs no system call where the kernel shows it."""
        ring = self._ring
        return ring is None or ring.head != ring.tail

    def result(self) -> int | None:
        """The result of the sync: 0, or the negative number of an error. None if it is not done. Clears what
        made `fileno()` readable."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)
        done = self._call(self._get_events, self._context, self._zero, self._one, self._event, self._at_once)
        return self._result() if done else None

    def wait(self) -> int:
        """Block until the sync is done. Returns its result."""
        self._call(self._get_events, self._context, self._one, self._one, self._event, None)
        return self._result()

    def _result(self) -> int:
        result: int = _EVENT.unpack(self._event)[2]
        return result

    def _call(self, *arguments: object) -> int:
        while (result := int(self._system(*arguments))) < 0:
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code))
        return result
