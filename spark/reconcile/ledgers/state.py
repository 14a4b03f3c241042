"""The state of the ledgers themselves: writers, promotions, changes of the in-sync set, and holes.

Values only. `assemble.py` fills them from events, `ends.py` decides how each writer ended, and the checks
read them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

STANDALONE = "standalone"
"""The reason in the promotion of a broker that belongs to no cluster."""

Process = tuple[str, int]
"""A writer and its incarnation."""


@dataclass(slots=True, frozen=True)
class Inventory:
    """The processes whose records say what is in the queues at the end.

    `complete`: each last owner ended cleanly, so an id that no owner lists is not in a queue. Otherwise an id
    without a fate is unknown, not lost. `processes`: those whose `present` records count. `owners`: the
    processes that served last and ended cleanly, one for each line. An owner must account for every id that
    it once held.
    """

    complete: bool
    processes: tuple[Process, ...]
    owners: tuple[Process, ...] = ()


@dataclass(slots=True)
class Writer:
    """One life of a writer process, as its ledger shows it. Times in microseconds since 1970, by its own
    clock."""

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
    """Some records of it come from files that are not pruned."""
    pruned_damaged: bool = False
    """Some of the pruned records could not be read."""
    records: dict[str, int] = field(default_factory=dict)
    views: dict[int, tuple[int, int]] = field(default_factory=dict)
    demoted: dict[int, int] = field(default_factory=dict)
    """Epoch -> when this process stopped serving it, if it went on running."""
    enqueues: dict[int, tuple[int, int]] = field(default_factory=dict)
    """View -> times of the first and last `enqueue` record."""
    chains: list[tuple[int, int]] = field(default_factory=list)
    sealed: bool = False
    end: str = "unknown"
    """sealed | crashed (a broker, by another ledger's record) | outlived (a client without a seal, and all
    brokers' ledgers begin after its time) | unknown."""
    ended_by: str = ""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    repeats: list[tuple[int, int]] = field(default_factory=list)
    torn: int = 0
    """Number of its lines that are not valid records."""

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
    """The position from which the change applies."""


LEVELS = ("all-disks", "primary-disk", "all-memory")
"""What confirms of persistent messages wait for, the strictest first."""


@dataclass(slots=True, frozen=True)
class LevelChange:
    """From position `n` of epoch `view` on, confirms wait for LEVELS[level] at least."""

    view: int
    node: str
    incarnation: int
    wseq: int
    level: int
    n: int


@dataclass(slots=True, frozen=True)
class Hole:
    """Missing records first..last (by `wseq`) of a process. `kind`: `gap` or `torn-tail`."""

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
    """The state of all ledgers. `missing`: one sentence for each thing that is missing."""

    writers: dict[Process, Writer] = field(default_factory=dict)
    promotions: list[Promotion] = field(default_factory=list)
    changes: list[SyncChange] = field(default_factory=list)
    levels: list[LevelChange] = field(default_factory=list)
    queue_names: dict[str, str] = field(default_factory=dict)
    definers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Queue UUID -> brokers that know the queue."""
    replicated: set[str] = field(default_factory=set)
    """Queues whose messages are replicated to backups."""
    clusters: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    """Brokers that are, or were, in a cluster."""
    missing: list[str] = field(default_factory=list)
    broken: bool = False
    """Records of a broker or consumer are missing: events that no ledger shows may have happened."""
    repeated: bool = False
    """Some records occur twice: a duplicate may exist in the ledgers only."""
    unreadable: int = 0
    served: set[int] = field(default_factory=set)
    """Epochs in which a broker recorded traffic."""
    holes: list[Hole] = field(default_factory=list)
    two_owners: list[int] = field(default_factory=list)
    """Epochs that more than one node opened."""
    linked: bool = False
    """A broker here has a federation link."""
    unsure_links: frozenset[str] = frozenset()
    """Link queues of nodes whose ledgers lack records."""

    @property
    def pruned_us(self) -> int:
        """The latest time up to which a ledger was pruned; 0: none was."""
        return max((w.pruned_us for w in self.writers.values()), default=0)

    def line_of(self, promotion: Promotion) -> str:
        """The line of a promotion: its cluster, or one broker that never belonged to a cluster. Epochs follow
        each other within a line."""
        if promotion.reason == STANDALONE and promotion.node not in self.members:
            return f"{STANDALONE} {promotion.node}"
        if len(self.clusters) < 2:
            return ""  # a node of a new cluster does not know the cluster's name at first
        return self.writers[promotion.node, promotion.incarnation].cluster

    def lines(self) -> list[list[Promotion]]:
        """The promotions of each line, by epoch."""
        out: dict[str, list[Promotion]] = defaultdict(list)
        for promotion in sorted(self.promotions, key=lambda p: p.epoch):
            out[self.line_of(promotion)].append(promotion)
        return list(out.values())

    def notes_disk(self, promotion: Promotion) -> bool:
        """Whether the owner of an epoch records what is on its disk (schema version 2)."""
        return self.writers[promotion.node, promotion.incarnation].records.get("durable", 0) > 0

    def inventory(self) -> Inventory:
        """The processes whose `present` records list the queues at the end."""
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
