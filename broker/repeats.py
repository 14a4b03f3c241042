"""Limits repeated log lines: one line of a kind each second, or a few, and then a count.

Owner: a component that logs what remote peers cause, who may be thousands. Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from understudy.shared.codes import Coded

S = TypeVar("S", str, Coded)

EVERY = 1.0
"""Seconds."""
_KINDS = 1000
"""Kinds that are distinguished. Further ones share one kind."""


class _Kind(Generic[S]):
    __slots__ = ("count", "last", "said", "until")

    def __init__(self, until: float, first: S) -> None:
        self.until, self.count, self.said = until, 0, 1
        self.last: S = first


class Repeats(Generic[S]):
    """`each`: lines of one kind logged in a second. `due`: when to call `flush`, or None."""

    __slots__ = ("_each", "_kinds", "_log", "due")

    def __init__(self, log: Callable[[S], None], each: int = 1) -> None:
        self._log: Callable[[S], None] = log
        self._each = each
        self._kinds: dict[Hashable, _Kind[S]] = {}
        self.due: float | None = None

    def say(self, kind: Hashable, sentence: S, now: float) -> None:
        """Log the line, or only count it if `each` lines of its kind were logged in the last second."""
        if kind not in self._kinds and len(self._kinds) >= _KINDS:
            kind = None
        known = self._kinds.get(kind)
        if known is None:
            self._log(sentence)
            self._kinds[kind] = _Kind(now + EVERY, sentence)
        elif known.said < self._each:
            known.said += 1
            self._log(sentence)
        else:
            known.count += 1
            known.last = sentence
        if self.due is None:
            self.due = now + EVERY

    def flush(self, now: float) -> None:
        """Log the last counted line of each kind, with the count."""
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
            known.count, known.said, known.until = 0, 1, now + EVERY
        self.due = min((known.until for known in self._kinds.values()), default=None)
