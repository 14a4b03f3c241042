"""Writers: for each process of a broker or client, which records have come, when it was last heard, and how
it ended.

Pure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from spark.watch.range_set import RangeSet

Process = tuple[str, int]


@dataclass(slots=True)
class LiveInventory:
    """An inventory that is being read: what its writer held at that consistency checkpoint, minus what it has
    listed so far.
    """

    name: str
    seen: int
    """When its newest record came."""
    suspects: dict[str, dict[int, RangeSet]] = field(default_factory=dict)


@dataclass(slots=True)
class LiveWriter:
    """One process of a broker or client. Times are the watcher's, in microseconds since 1970: clocks of nodes
    may differ by hours.
    """

    name: str
    incarnation: int
    role: str = ""
    cluster: str = ""
    chain: RangeSet = field(default_factory=RangeSet)
    """Numbers of the records that have come."""
    begins: int = 0
    """Records before this number are not waited for."""
    first_heard: int = 0
    heard: int = 0
    clear: int = 0
    """When it was last heard with its last line complete."""
    beats: bool = False
    """Whether it writes heartbeats (schema version 2), so that silence is significant."""
    sealed: bool = False
    ended: str = ""
    """Why the watch no longer waits for it, in words; empty while it does."""
    ended_at: int = 0
    silent: bool = False
    """Whether a `silent` alarm was raised."""
    owns: int = -1
    """The epoch that it opened and still serves; -1 if none."""
    view: int = 0
    hole_since: int = 0
    hole_file: str = ""
    listed: dict[str, dict[int, RangeSet]] = field(default_factory=dict)
    """Ids listed so far by `present` records, by queue and epoch."""
    inventory: LiveInventory | None = None

    @property
    def process(self) -> Process:
        return self.name, self.incarnation

    @property
    def called(self) -> str:
        return f"{self.role or 'writer'} {self.name} (incarnation {self.incarnation})"

    @property
    def matters(self) -> bool:
        """Whether its records can explain what became of a message."""
        return self.role != "producer"

    @property
    def hole(self) -> tuple[int, int] | None:
        """The first gap: record numbers that have not come although later ones have."""
        if not self.chain:
            return None
        return next(self.chain.gaps(self.begins, self.chain.last), None)

    def whole_to(self, wseq: int) -> bool:
        return next(self.chain.gaps(self.begins, wseq), None) is None

    def state(self) -> dict[str, Any]:
        out = {name: getattr(self, name) for name in _PLAIN}
        out["chain"] = self.chain.flat()
        out["listed"] = _flat(self.listed)
        point = self.inventory
        out["inventory"] = point and [point.name, point.seen, _flat(point.suspects)]
        return out

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> LiveWriter:
        made = cls(**{name: state[name] for name in _PLAIN})
        made.chain = RangeSet.of_flat(state["chain"])
        made.listed = _unflat(state["listed"])
        if state["inventory"]:
            name, seen, suspects = state["inventory"]
            made.inventory = LiveInventory(name, seen, _unflat(suspects))
        return made


_PLAIN = (
    "name", "incarnation", "role", "cluster", "begins", "first_heard", "heard", "clear", "beats", "sealed",
    "ended", "ended_at", "silent", "owns", "view", "hole_since", "hole_file",
)  # fmt: skip

ByQueue = dict[str, dict[int, RangeSet]]


def _flat(sets: ByQueue) -> dict[str, list[Any]]:
    return {queue: [[epoch, ids.flat()] for epoch, ids in by.items()] for queue, by in sets.items()}


def _unflat(sets: dict[str, list[Any]]) -> ByQueue:
    return {queue: {epoch: RangeSet.of_flat(flat) for epoch, flat in by} for queue, by in sets.items()}


@dataclass(slots=True)
class LivePromotion:
    """A promotion: `node` opened epoch `view` with its record number `wseq`."""

    view: int
    node: str
    incarnation: int
    wseq: int
    peer: str
    reason: str
    seen: int

    def state(self) -> dict[str, Any]:
        return asdict(self)
