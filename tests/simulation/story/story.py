"""A run told again for a reader: who said what to whom, in which order, down to what matters for its failure.

`tell` runs a plan once more with every byte overheard; `Story.rows` leaves out what does not concern the
message or queue that the failure names, and folds what is alike. The words are those of the transcripts in
`tests/ha`: `A> ...` is what node A logged, `A: ...` what its core did, `A = status` a change of status.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from broker.model.values import Position
from ha.adapter.effect_runner import EffectRunner
from ha.adapter.node import Node
from ha.core.effects import (
    Effect,
    FenceOutput,
    PauseInput,
    ReadRegister,
    ResumeInput,
    ResumeOutput,
    SaveRecord,
    StartServing,
    StopServing,
    SwapRegister,
)  # fmt: skip
from ha.core.record.in_sync_record import record_from_json
from tests.ha.telling import describe, epoch_text, readable, record_line
from tests.simulation.harness.coverage.replacing import replaced
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine, OutputTap
from tests.simulation.harness.plan import Plan
from tests.simulation.harness.world import World
from tests.simulation.story.overheard import CIB, POINTS, REGISTER, Ear, Event

SHOWN_ITEMS = 4
"""Of one event that concerns many messages."""
LAST_SAID = 4
"""Of what a node was about to send when a checker objected."""
LAST_HEARD = 8
"""Deliveries shown of a client that the failure names."""
MOST_ROWS = 140
"""Of one story; the beginning of a longer one is folded."""
CONNECTIONS, SUBSCRIPTIONS = "connections", "subscriptions"
REFUSALS, READS = "refusals of the same kind", "reads of the authority"
SNAPSHOTS = frozenset({"snapshots", "snapshot pieces"})
UNCOUNTED = frozenset({CONNECTIONS, READS, "hellos", "questions", "answers"})
"""Groups of which a fold says nothing."""

FAULT = "FAULT: "
"""How notes begin of what is injected, and nothing else."""
SURROUNDINGS = (
    "cluster: ", "packets ", "the register ", "the record is in the CIB ", "the host of ", "the disk of ",
)  # fmt: skip
"""How notes begin of what happens around the nodes by itself, or is mended."""
OF_A_NODE = ("the disk of ", "the wall clock of ", "byte ")
"""How sentences begin that are about a node, and name it later."""

_NOTE = re.compile(r"\s*([\d.]+)  (\S.*)", re.DOTALL)
_KEY = re.compile(r"\b[\w-]+:\d+\b")


@dataclass(slots=True)
class Fold:
    """Events that were left out here, by how many there were of each group."""

    counts: Counter[str]

    @property
    def text(self) -> str:
        return "… " + ", ".join(
            f"{many} {group if many != 1 else _one(group)}" for group, many in sorted(self.counts.items())
        )


Row = Event | Fold


@dataclass(slots=True)
class Story:
    """One run as it was told. `failure` is None for a run without one."""

    plan: Plan
    nodes: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    failure: str | None = None
    trace_hash: str = ""
    numbers: dict[int, str] = field(default_factory=dict)
    """Nodes by the number that is in their epochs."""

    # -- what it is about

    def keys(self) -> frozenset[str]:
        """Messages that the failure names."""
        spoken = frozenset().union(*(event.keys for event in self.events))
        return frozenset(_KEY.findall(self.failure or "")) & spoken

    def queues(self) -> frozenset[str]:
        """Queues that it names."""
        spoken = frozenset().union(*(event.queues for event in self.events))
        return frozenset(re.findall(r"[\w.-]+", self.failure or "")) & spoken

    def rows(self) -> list[Row]:
        """What is worth reading, in order."""
        keys, queues = self.keys(), self.queues()
        milestones = self._milestones(keys) | self._heard_before(queues) | self._points()
        involved = {name for e in self.events if e.keys & keys for name in (e.source, e.target)}
        milestones |= self._last_words(lambda event: _matters(event, keys, queues, involved))
        again = self._said_again()
        rows: list[Row] = []
        folded: Counter[str] = Counter()
        for n, event in enumerate(self.events):
            if n in again:
                if event.text.startswith("refused"):
                    folded[REFUSALS] += 1
            elif event.kind != "say" or n in milestones or _matters(event, keys, queues, involved):
                if folded:
                    rows.append(Fold(folded))
                    folded = Counter()
                rows.append(self._named(_narrowed(event, keys)))
            elif event.group and event.group not in UNCOUNTED:
                folded[event.group] += 1
        if folded:
            rows.append(Fold(folded))
        return _shortened(rows)

    def _last_words(self, matters: Callable[[Event], bool]) -> set[int]:
        """Indexes of what a node was about to say, and of how the connection came about on which it would
        have: it is what the checker objects to, whether the failure names what is in it or not."""
        last = [n for n, event in enumerate(self.events) if event.last]
        shown = [n for n in last if matters(self.events[n])] or last[:LAST_SAID]
        streams = {self.events[n].stream for n in shown}
        return {*shown} | {
            n for n, event in enumerate(self.events)
            if event.stream in streams and event.group in (CONNECTIONS, SUBSCRIPTIONS)
        }  # fmt: skip

    def _said_again(self) -> set[int]:
        """Indexes of questions that were answered as the one before, with their answers; and of sentences
        that a node logs when it says the same to whom it concerns."""
        found: set[int] = set()
        asked: dict[str, int] = {}
        answered: dict[str, str] = {}
        for n, event in enumerate(self.events):
            if event.kind == "log" and event.text.startswith(("promotion refused: ", "connection ")):
                found.add(n)
            elif event.kind == "say" and event.target in self.nodes and event.text == "promote":
                asked[event.stream] = n
            elif event.kind == "say" and event.stream in asked and event.text.startswith("refused: "):
                question = asked.pop(event.stream)
                if answered.get(event.source) == event.text:
                    found |= {question, n}
                answered[event.source] = event.text
            elif event.kind not in ("say", "log", "does"):
                answered.clear()
        return found

    def _named(self, event: Event) -> Event:
        """Epochs by the name of the node that opened them: 2/B for 2/5003."""
        event.text = self.readable(event.text)
        return event

    def readable(self, text: str) -> str:
        for number, name in self.numbers.items():
            text = re.sub(rf"\b(\d+)/{number}\b", rf"\1/{name}", text)
        return text

    def _milestones(self, keys: frozenset[str]) -> set[int]:
        """Indexes of the acks by which a backup first tells that it has, and has on disk, what matters."""
        found: set[int] = set()
        waiting: list[tuple[str, Position, bool]] = []
        for n, event in enumerate(self.events):
            if event.position is not None and event.keys & keys:
                position = Position(*event.position)
                waiting += [(event.stream, position, False), (event.stream, position, True)]
            ack = event.ack
            if ack is None:
                continue
            met = [
                w for w in waiting if w[0] == event.stream and (ack.durable if w[2] else ack.applied) >= w[1]
            ]
            if met:
                found.add(n)
                waiting = [w for w in waiting if w not in met]
        return found

    def _points(self) -> set[int]:
        """Indexes of the consistency checkpoints that the failure names."""
        words = set(re.findall(r"[\w.]+", self.failure or ""))
        points = ((n, event) for n, event in enumerate(self.events) if event.group == POINTS)
        return {n for n, event in points if event.text.split()[-1] in words}

    def _heard_before(self, queues: frozenset[str]) -> set[int]:
        """Indexes of what a client that the failure names was delivered last from a queue that it names, and
        gave back: for a failure of order."""
        words = set(re.findall(r"[\w.-]+", self.failure or ""))
        found = [
            n for n, event in enumerate(self.events)
            if (event.group == "deliveries" and event.target in words and event.queues & queues)
            or (event.source in words and "requeue" in event.text)
        ]  # fmt: skip
        return set(found[-LAST_HEARD:])

    def lanes(self, rows: list[Row]) -> list[str]:
        """Everybody who appears: publishers and others to the left of the nodes, consumers to the right."""
        shown = {name for row in rows if isinstance(row, Event) for name in (row.source, row.target) if name}
        consumers = {consumer.name for consumer in self.plan.consumers}
        right = sorted(name for name in shown if name in consumers or name.startswith("drain-"))
        left = sorted(
            shown - {*right, *self.nodes}, key=lambda name: (name in ("operator", REGISTER, CIB), name)
        )
        return [*left, *(node for node in self.nodes if node in shown), *right]


def tell(plan: Plan) -> Story:
    """Run it once more, and listen. It is the same run: nothing that listens is asked anything."""
    world = World(plan)
    story = Story(plan, [machine.name for machine in world.machines])
    statuses = dict.fromkeys(story.nodes, "down")

    def heard(event: Event) -> None:
        if event.target and event.source == event.target:
            return  # a node that dials all addresses meets itself once
        for machine in world.machines:
            status = machine.role()
            if machine.node is not None:
                story.numbers[machine.node.me.number] = machine.name
            if status != statuses[machine.name]:
                statuses[machine.name] = status
                if status != "down":
                    story.events.append(Event(round(world.clock.now, 6), "status", machine.name, status))
        event.held = event.kind == "say" and _unheard(world, event)
        story.events.append(event)

    def noted(line: str) -> None:
        event = _from_note(line, story.nodes)
        if event is not None:
            heard(event)

    world.clock.echo = noted
    ear = Ear(lambda: round(world.clock.now, 6), heard)
    last = LastWords(ear)
    world.network.tap = ear.hear
    for machine in world.machines:
        machine.tap = last.before(machine.tap)
    with _inside_told(world, heard):
        story.failure = _failure(world)
    if story.failure is not None:
        told = len(story.events)
        last.tell()
        for event in story.events[told:]:
            event.last = event.kind == "say"
        for uuid, queue in ear.names.queues.items():
            story.failure = story.failure.replace(uuid.hex(), queue)
        heard(Event(round(world.clock.now, 6), "end", "", readable(story.failure)))
    story.trace_hash = world.clock.trace_hash()
    return story


def _failure(world: World) -> str | None:
    """Run the world to its end. What a checker objected to, or what broke the run; None if it is sound."""
    try:
        world.run()
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _unheard(world: World, event: Event) -> bool:
    """Is what was said held up on its way, or by a reader that stands still?"""
    network = world.network
    if network.troubled and network.blocked(event.source, event.target):
        return True
    return any(machine.name == event.target and machine.paused for machine in world.machines)


class LastWords:
    """What a node was about to send to a client when a checker objected: it never gets to the network."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._unsent: tuple[str, str, bytes] | None = None

    def before(self, tap: OutputTap) -> OutputTap:
        def seen(machine: Machine, connection: str, data: bytes) -> None:
            self._unsent = connection, machine.name, data
            tap(machine, connection, data)
            self._unsent = None

        return seen

    def tell(self) -> None:
        if self._unsent is not None:
            stream, node, data = self._unsent
            self._ear.hear(stream, node, stream.split("#")[0], data)


@contextmanager
def _inside_told(world: World, heard: Callable[[Event], None]) -> Iterator[None]:
    """What no wire carries: what a core decides for itself, and what it asks the authority."""
    authority = CIB if world.plan.authority == "pacemaker" else REGISTER
    reads: set[tuple[str, int]] = set()

    def carrying_out(original: Callable[..., None]) -> Callable[..., None]:
        def one(self: EffectRunner, effect: Effect, now: float) -> None:
            event = _of_effect(effect, self._node.me.name, authority)
            if event is not None:
                event.at = round(world.clock.now, 6)
                heard(event)
            if isinstance(effect, ReadRegister):
                reads.add((self._node.me.name, effect.request_id))
            original(self, effect, now)

        return one

    def answering(original: Callable[..., None]) -> Callable[..., None]:
        def answered(
            self: Node, request_id: int, outcome: Any, record: Any, now: float, reason: str = "",
            owner_gone: bool = False,
        ) -> None:  # fmt: skip
            group = READS if (self.me.name, request_id) in reads and outcome == "done" else ""
            held = record_line(record_from_json(record)) if record is not None else "nothing"
            held += ", whose owner has let its lease run out" * owner_gone
            text = {"unknown": "no answer", "not yet": f"not yet: {reason}"}.get(
                outcome, f"{outcome}: {held}"
            )
            heard(Event(round(world.clock.now, 6), "say", authority, text, self.me.name, group=group))
            original(self, request_id, outcome, record, now, reason, owner_gone)

        return answered

    with (
        replaced(EffectRunner, "_one", carrying_out),
        replaced(Node, "authority_answered", answering),
    ):
        yield


def _of_effect(effect: Effect, node: str, authority: str) -> Event | None:
    """What is told of it; what is sent to peers is overheard."""
    match effect:
        case SaveRecord() | StartServing() | StopServing():
            return Event(0.0, "does", node, describe(effect) or "")
        case FenceOutput():
            return Event(0.0, "does", node, "fence the output of clients")
        case PauseInput() | ResumeInput():
            return Event(0.0, "does", node, describe(effect) or "")
        case ResumeOutput():
            return Event(0.0, "does", node, "resume the output of clients")
        case ReadRegister():
            return Event(0.0, "say", node, "read", authority, group=READS)
        case SwapRegister(expected=expected, record=record):
            old = f"{epoch_text(expected.epoch)}.{expected.revision}" if expected is not None else "nothing"
            return Event(0.0, "say", node, f"swap {old} for {record_line(record)}", authority)
    return None


def _from_note(line: str, nodes: list[str]) -> Event | None:
    """What the trace adds to what was overheard: faults, lives of nodes, sentences that nodes log."""
    found = _NOTE.fullmatch(line)
    if found is None:
        return None  # a detail for --verbose: the wire has it too
    at, text = float(found[1]), found[2]
    who, colon, sentence = text.partition(": ")
    if colon and who in nodes:
        return Event(at, "log", who, readable(sentence))
    injected, said = text.startswith(FAULT), text.removeprefix(FAULT)
    who, _, what = said.partition(" ")
    if who in nodes or what == "stops reading":
        return Event(at, "fault" if injected else "life", who, what)
    words = re.findall(r"\w+", said) if said.startswith(OF_A_NODE) else []
    node = next((word for word in words if word in nodes), "")
    if injected:
        return Event(at, "fault", node, said)
    return Event(at, "around", node, readable(said)) if said.startswith(SURROUNDINGS) else None


def _matters(event: Event, keys: frozenset[str], queues: frozenset[str], involved: set[str]) -> bool:
    """Is what was said worth a line, for a failure that names these?"""
    if event.news or not event.group:
        return True
    if event.group == CONNECTIONS:
        return event.source in involved and event.target in involved
    if event.group in SNAPSHOTS or (event.group == "definitions" and not keys):
        return bool(event.queues & queues)
    return bool(event.keys & keys)


def _narrowed(event: Event, keys: frozenset[str]) -> Event:
    """The same event with its items in its text: those that concern the failure first, the rest counted."""
    if not event.items:
        return event
    spoken = [item for item in event.items if item.text]
    mine = [item for item in spoken if item.keys & keys] or spoken
    shown = mine[:SHOWN_ITEMS]
    texts = [item.text for item in shown]
    rest = len(spoken) - len(shown)
    if rest:
        texts.append(f"and {rest} more")
    return replace(event, text=": ".join([event.text, ", ".join(texts)]) if texts else event.text)


def _shortened(rows: list[Row]) -> list[Row]:
    if len(rows) <= MOST_ROWS:
        return rows
    left_out = len(rows) - MOST_ROWS
    return [Fold(Counter({"lines before this": left_out})), *rows[left_out:]]


def _one(group: str) -> str:
    """Singular: "batches" is "batch", "acks of consumers" is "ack of consumers"."""
    first, of, rest = group.partition(" of ")
    for plural, single in (("ches", "ch"), ("shes", "sh"), ("ies", "y"), ("s", "")):
        if first.endswith(plural):
            first = first.removesuffix(plural) + single
            break
    return first + of + rest


# -- as text


def transcript(story: Story) -> list[str]:
    """One line a row."""
    return [_line(row) for row in story.rows()]


def _line(row: Row) -> str:
    if isinstance(row, Fold):
        return f"{'':10}  {row.text}"
    time = f"{row.at:10.6f}"
    match row.kind:
        case "say":
            return f"{time}  {row.source} {'-->' if row.held else '->'} {row.target}: {row.text}"
        case "log":
            return f"{time}  {row.source}> {row.text}"
        case "does":
            return f"{time}  {row.source}: {row.text}"
        case "status":
            return f"{time}  {row.source} = {row.text}"
        case "life":
            return f"{time}  {row.source} {row.text}"
        case "around":
            return f"{time}  {row.text}"
        case "fault":
            named = f"{row.source} " if row.source and not row.text.startswith(OF_A_NODE) else ""
            return f"{time}  FAULT: {named}{row.text}"
        case _:
            return f"{time}  VIOLATED: {row.text}"
