"""Names what a definitions file asks for and this broker does not support, so that nothing is dropped
silently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from understudy.shared.text import shown

_NAMES_SHOWN = 5


@dataclass(slots=True, frozen=True)
class LeftOut:
    """Objects of one kind that are not imported, or that have no effect here. `matters` is False if nothing
    is missing without them."""

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
    """`1 queue of type stream`, `2 queues of type stream`: the noun before `of`, `by`, `with` or `x-` takes
    the plural."""
    match = re.search(r" (?=of |by |with |x-)|$", what)
    noun, rest = (what[: match.start()], what[match.start() :]) if match else (what, "")
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}{rest}"


def left(what: str, names: Iterable[str], why: str, *, matters: bool = True) -> list[LeftOut]:
    """One `LeftOut` for all `names`, without duplicates; an empty list if there are none."""
    found = tuple(dict.fromkeys(names))
    return [LeftOut(what, found, why, matters)] if found else []
