"""Ends an operation at its n-th call to the disk: by an exception, or by the death of the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

STEPS = ("open", "write", "fsync", "fdatasync", "mkdir", "rename", "replace", "unlink")
_DEAD = 9


@contextmanager
def ending(at: int, act: Callable[[], None]) -> Iterator[list[str]]:
    """Call `act` before call number `at` (from 0) to the disk. Yields the names of the calls so far."""
    calls: list[str] = []
    counted: dict[str, Any] = {name: _counted(name, at, act, calls) for name in STEPS}
    with mock.patch.multiple(os, **counted):
        yield calls


def _counted(name: str, at: int, act: Callable[[], None], calls: list[str]) -> Callable[..., object]:
    real = getattr(os, name)

    def call(*arguments: object, **named: object) -> object:
        calls.append(name)
        if len(calls) == at + 1:
            act()
        return real(*arguments, **named)

    return call


def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs return at once; they still count as calls."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


def killed_at(at: int, work: Callable[[], object]) -> bool:
    """Run `work` in a process that dies before its call number `at` to the disk. False if `work` ended
    before."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, _DEAD), code
        return code == _DEAD
    code = 1
    try:
        with ending(at, lambda: os._exit(_DEAD)):
            work()
        code = 0
    finally:
        os._exit(code)
