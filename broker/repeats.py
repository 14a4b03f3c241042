"""Sentences that would come again and again: the log gets one of a kind each second, with their number.

Owner: whoever logs for strangers, who may come by the thousand. Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from understudy.shared.codes import Coded

S = TypeVar("S", str, Coded)

EVERY = 1.0
"""Seconds."""
_KINDS = 1000
"""Kinds that are told apart; what is beyond shares one."""


class _Kind(Generic[S]):
    __slots__ = ("count", "last", "until")

    def __init__(self, until: float, first: S) -> None:
        self.until, self.count = until, 0
        self.last: S = first


class Repeats(Generic[S]):
    """`due`: when `flush` is to be called, or None."""

    __slots__ = ("_kinds", "_log", "due")

    def __init__(self, log: Callable[[S], None]) -> None:
        self._log: Callable[[S], None] = log
        self._kinds: dict[Hashable, _Kind[S]] = {}
        self.due: float | None = None

    def say(self, kind: Hashable, sentence: S, now: float) -> None:
        """Log it, unless one of its kind was logged within the last second: then it is counted."""
        if kind not in self._kinds and len(self._kinds) >= _KINDS:
            kind = None
        known = self._kinds.get(kind)
        if known is None:
            self._log(sentence)
            self._kinds[kind] = _Kind(now + EVERY, sentence)
        else:
            known.count += 1
            known.last = sentence
        if self.due is None:
            self.due = now + EVERY

    def flush(self, now: float) -> None:
        """The last of each kind that came meanwhile, and how many there were."""
        if self.due is None or now < self.due:
            return
        for kind, known in list(self._kinds.items()):
            if now < known.until:
                continue
            if not known.count:
                del self._kinds[kind]
                continue
            others = f" ({known.count:,} of the kind in the last second)" if known.count > 1 else ""
            self._log(known.last + others)
            known.count, known.until = 0, now + EVERY
        self.due = min((known.until for known in self._kinds.values()), default=None)
