"""Watches from outside: what each broker, and whoever has the virtual address, says of itself, all the time.

Owner: one case. A thread for each watched address; what was seen is read when the case is over, or by its
thread meanwhile. Times are seconds since 1970.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from tests.cluster.site import ask_status

SERVING = ("active", "recovering", "standalone")
_PACE = 0.04
_SILENCE = 0.4
"""Seconds after which an answer is not waited for any longer."""


@dataclass(slots=True, frozen=True)
class Sample:
    """One answer; it was true at some moment between `asked` and `answered`."""

    asked: float
    answered: float
    name: str
    status: str
    epoch: int
    incarnation: int
    withheld: bool

    @property
    def serves(self) -> bool:
        return self.status in SERVING and not self.withheld

    @property
    def term(self) -> tuple[str, int, int]:
        return self.name, self.incarnation, self.epoch


@dataclass(slots=True, frozen=True)
class Stretch:
    """All this time one node said that it served, one term through."""

    name: str
    epoch: int
    begin: float
    end: float


class Watch:
    """A context manager. `addresses`: by the name under which the samples are kept."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.samples: dict[str, list[Sample]] = {name: [] for name in addresses}
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, args=(name, address), daemon=True)
            for name, address in addresses.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(10)

    def first(self, key: str, condition: Callable[[Sample], bool], since: float) -> float | None:
        """When that was first seen at that address by a question that was asked after `since`."""
        for sample in list(self.samples[key]):
            if sample.asked >= since and condition(sample):
                return sample.answered
        return None

    def epoch_at(self, moment: float) -> int:
        """The highest that any node had told by then."""
        return max(
            (each.epoch for own in self.samples.values() for each in own if each.answered <= moment),
            default=0,
        )

    def _look(self, key: str, address: str) -> None:
        while not self._end.wait(_PACE):
            asked = time.time()
            found = ask_status(address, _SILENCE)
            if found:
                self.samples[key].append(_sample(asked, found))


def _sample(asked: float, found: Mapping[str, Any]) -> Sample:
    return Sample(
        asked, time.time(), str(found["name"]), str(found["status"]), int(found["epoch"]),
        int(found["incarnation"]), bool(found["withheld"]),
    )  # fmt: skip


def stretches(samples: Sequence[Sample]) -> Iterator[Stretch]:
    """What is certain of one node: between two answers of one term, both saying that it serves, it served."""
    for one, two in pairwise(samples):
        if one.serves and two.serves and one.term == two.term and two.asked - one.answered < _SILENCE:
            yield Stretch(one.name, one.epoch, one.answered, two.asked)


def overlaps(of_nodes: Iterable[Sequence[Sample]]) -> list[tuple[Stretch, Stretch]]:
    """Times at which two nodes served."""
    served = sorted(
        (each for samples in of_nodes for each in stretches(samples)), key=lambda each: each.begin
    )
    found: list[tuple[Stretch, Stretch]] = []
    last: Stretch | None = None
    for each in served:
        if last is not None and last.name != each.name and each.begin < last.end:
            found.append((last, each))
        if last is None or each.end > last.end:
            last = each
    return found
