"""Mutant: one breakage of the product by hand, the real bug it stands for, and the checker that must find it.

Owner: the lists of this package. A mutant patches a few attributes of the product for the time of a `with`;
all the rest is the real thing. One that changes nothing that anybody could see is not one: it would survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock


@dataclass(slots=True, frozen=True)
class Patch:
    """`attribute` of `owner`, a class or a module, becomes what `broken` makes of the original."""

    owner: Any
    attribute: str
    broken: Callable[[Any], Any]


@dataclass(slots=True, frozen=True)
class Mutant:
    """`found_as`: the invariant whose checker must object; more than one needs a reason in `because`."""

    name: str
    stands_for: str
    """The bug in a sentence, and who had it where that is known."""
    found_as: tuple[int, ...]
    patches: tuple[Patch, ...]
    because: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the product; all is as it was afterwards."""
        with ExitStack() as stack:
            for patch in self.patches:
                original = getattr(patch.owner, patch.attribute)
                stack.enter_context(mock.patch.object(patch.owner, patch.attribute, patch.broken(original)))
            yield


def always(value: Any) -> Callable[[Any], Any]:
    """Breaks a property: it is `value`, whatever happens."""
    return lambda original: property(lambda self: value)


def never(original: Any) -> Any:
    """Breaks a method: it does nothing."""
    return lambda self, *args, **kwargs: None
