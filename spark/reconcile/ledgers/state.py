"""What is known of the ledgers themselves: their writers, promotions, changes of the in-sync set, holes.

Values only. `assemble.py` fills them from events, `ends.py` says how each writer ended, the checks read them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

STANDALONE = "standalone"
"""Why a broker of no cluster promotes itself."""

Process = tuple[str, int]
"""A writer and its incarnation."""


@dataclass(slots=True, frozen=True)
class Inventory:
    """Whose word counts for what is in the queues at the end.

    `complete`: each last owner ended cleanly, so that an id that none lists is not there; otherwise an id
    without a fate is unknown, not lost. `processes`: whose `present` records count. `owners`: the processes
    that served last and ended cleanly, one for each line: what such a one once held it must account for.
    """

    complete: bool
    processes: tuple[Process, ...]
    owners: tuple[Process, ...] = ()


@dataclass(slots=True)
class Writer:
    """One process life of a writer, by its ledger. Times in microseconds since 1970, by its own clock."""

    name: str
    incarnation: int
    role: str = ""
    cluster: str = ""
    first_us: int = 0
    last_us: int = 0
    view: int = 0
    pruned_us: int = 0
    """Records up to this time were pruned; 0: none."""
    goes_on: bool = False
    """There are ledgers of it beyond what pruning left."""
    pruned_damaged: bool = False
    """Not all of what was pruned could be read."""
    records: dict[str, int] = field(default_factory=dict)
    views: dict[int, tuple[int, int]] = field(default_factory=dict)
    demoted: dict[int, int] = field(default_factory=dict)
    """When it ceased to serve an epoch that it outlived."""
    enqueues: dict[int, tuple[int, int]] = field(default_factory=dict)
    """When it first and last noted an `enqueue`, by view."""
    chains: list[tuple[int, int]] = field(default_factory=list)
    sealed: bool = False
    end: str = "unknown"
    """sealed | crashed (a broker, and somebody says so) | outlived (a client without a seal, of whose time
    no broker's ledgers tell any more) | unknown."""
    ended_by: str = ""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    repeats: list[tuple[int, int]] = field(default_factory=list)
    torn: int = 0
    """Lines of it that are no record."""

    @property
    def process(self) -> Process:
        return self.name, self.incarnation


@dataclass(slots=True, frozen=True)
class Promotion:
    epoch: int
    node: str
    incarnation: int
    previous: str
    reason: str
    ts_us: int


@dataclass(slots=True, frozen=True)
class SyncChange:
    view: int
    node: str
    incarnation: int
    wseq: int
    peer: str
    reason: str
    names: tuple[str, ...]
    ts_us: int
    n: int = 0
    """The position from which on it holds."""


@dataclass(slots=True, frozen=True)
class Hole:
    """Records first..last (by `wseq`) of a process that are not there. `gap` or `torn-tail`."""

    kind: str
    writer: str
    incarnation: int
    first: int
    last: int
    file: str
    excused: bool
    sentence: str


@dataclass(slots=True)
class LedgerState:
    """What is known of the ledgers themselves; `missing` is a sentence for each thing that is not there."""

    writers: dict[Process, Writer] = field(default_factory=dict)
    promotions: list[Promotion] = field(default_factory=list)
    changes: list[SyncChange] = field(default_factory=list)
    queue_names: dict[str, str] = field(default_factory=dict)
    definers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Brokers that know a queue, by its UUID."""
    replicated: set[str] = field(default_factory=set)
    """Queues whose messages backups are to hold."""
    clusters: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    """Brokers that are, or were, in a cluster."""
    missing: list[str] = field(default_factory=list)
    broken: bool = False
    """A broker's or a consumer's records are missing: what is not in the ledgers may still have happened."""
    repeated: bool = False
    """Some records are in the ledgers twice: a duplicate may be one in the ledgers only."""
    unreadable: int = 0
    served: set[int] = field(default_factory=set)
    """Epochs in which a broker noted traffic."""
    holes: list[Hole] = field(default_factory=list)
    two_owners: list[int] = field(default_factory=list)
    """Epochs that more than one node opened."""

    @property
    def pruned_us(self) -> int:
        """Up to when the ledgers were pruned at most; 0: they are whole."""
        return max((w.pruned_us for w in self.writers.values()), default=0)

    def line_of(self, promotion: Promotion) -> str:
        """Whose epochs follow each other: those of a cluster, or of one broker that was never in any."""
        if promotion.reason == STANDALONE and promotion.node not in self.members:
            return f"{STANDALONE} {promotion.node}"
        if len(self.clusters) < 2:
            return ""  # a node of a new cluster does not know its name at once
        return self.writers[promotion.node, promotion.incarnation].cluster

    def lines(self) -> list[list[Promotion]]:
        """The promotions of each line, by epoch."""
        out: dict[str, list[Promotion]] = defaultdict(list)
        for promotion in sorted(self.promotions, key=lambda p: p.epoch):
            out[self.line_of(promotion)].append(promotion)
        return list(out.values())

    def notes_disk(self, promotion: Promotion) -> bool:
        """Whether the owner of an epoch notes what is on its disk (schema version 2)."""
        return self.writers[promotion.node, promotion.incarnation].records.get("durable", 0) > 0

    def inventory(self) -> Inventory:
        """Whose `present` records say what is in the queues at the end."""
        brokers = [w for w in self.writers.values() if w.role == "broker"]
        if self.promotions:
            complete, processes, owners = True, [], []
            for line in self.lines():
                last = line[-1]
                owner = self.writers[last.node, last.incarnation]
                if owner.sealed:
                    owners.append(owner.process)
                    processes.append(owner.process)
                else:
                    complete = False
                    processes += [w.process for w in brokers if w.view == last.epoch]
            return Inventory(complete, tuple(processes), tuple(owners))
        view = max((w.view for w in brokers), default=0)
        current = [w for w in brokers if w.view == view]
        complete = bool(current) and all(w.sealed for w in current)
        return Inventory(complete, tuple(w.process for w in current))
