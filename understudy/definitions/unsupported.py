"""What a definitions file asks for and a broker has not: named, and never dropped silently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from understudy.shared.text import shown

_NAMES_SHOWN = 5


@dataclass(slots=True, frozen=True)
class LeftOut:
    """What does not come over. `matters`: False where nothing is missed."""

    what: str
    names: tuple[str, ...]
    why: str
    matters: bool = True

    @property
    def text(self) -> str:
        more = len(self.names) - _NAMES_SHOWN
        some = ", ".join(self.names[:_NAMES_SHOWN]) + (f", and {more} more" if more > 0 else "")
        return shown(f"{counted(len(self.names), self.what)} ({some}): {self.why}")


def counted(number: int, what: str) -> str:
    """`1 queue of type stream`, `2 queues of type stream`: it is the word before `of` that has a plural."""
    match = re.search(r" (?=of |by |with |x-)|$", what)
    noun, rest = (what[: match.start()], what[match.start() :]) if match else (what, "")
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}{rest}"


def left(what: str, names: Iterable[str], why: str, *, matters: bool = True) -> list[LeftOut]:
    """One `LeftOut` of all of `names`, each once; nothing if there are none."""
    found = tuple(dict.fromkeys(names))
    return [LeftOut(what, found, why, matters)] if found else []
