"""Judges whether the ledgers are whole, from the few events about writers and their ends. Runs on the driver.

Pure: rows in, a `LedgerState` out. Invariant 30: lost records of a ledger are reported; they never count as
"no loss".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol
from urllib.parse import unquote

from spark.reconcile.ledgers.ends import endless, let_outlived_go, name_ends, stem
from spark.reconcile.ledgers.state import (
    LEVELS,
    STANDALONE,
    Hole,
    LedgerState,
    LevelChange,
    Promotion,
    SyncChange,
    Writer,
)
from spark.schema import NOT_PARQUET, PRUNED_NAME

NO_PRODUCER = "there is no ledger of a producer, so the confirmed messages are unknown"
TRAFFIC = frozenset({"enqueue", "backup_enqueue", "dequeue", "backup_dequeue", "replicated"})
"""Kinds that a broker writes only in an epoch that a promotion opened."""


class Event(Protocol):
    """A row of EVENT_SCHEMA, as collected."""

    def __getitem__(self, name: str) -> object: ...


def _int(event: Event, name: str) -> int:
    value = event[name]
    return value if isinstance(value, int) else 0


def _str(event: Event, name: str) -> str:
    value = event[name]
    return value if isinstance(value, str) else ""


Where = Callable[[str, int, int, int], str]
"""Writer, incarnation, first and last missing `wseq` -> the file in words, or ""."""


def assemble(events: Iterable[Event], where: Where = lambda *_: "", *, let_go: bool = False) -> LedgerState:
    """Build the state from the events of STATE_KINDS. `where` is called only for missing records. `let_go`:
    whether clients may count as outlived."""
    ledgers = LedgerState()
    torn: list[Event] = []
    for event in events:
        _enter(ledgers, event, torn)
    for writer in ledgers.writers.values():
        _check_chain(writer)
    name_ends(ledgers)
    if let_go:
        let_outlived_go(ledgers)
    _place_torn(ledgers, torn)
    _find_gaps(ledgers, where)
    _judge(ledgers)
    return ledgers


def _enter(ledgers: LedgerState, event: Event, torn: list[Event]) -> None:
    kind = event["kind"]
    if kind == "version":
        ledgers.missing.append(
            f"{_int(event, 'n')} records have schema version {event['name']}; this job reads versions 1 and 2"
        )
        return
    if kind == "malformed":
        torn.append(event)
        return
    key = (_str(event, "writer"), _int(event, "incarnation"))
    writer = ledgers.writers.setdefault(key, Writer(*key))
    if (enter := _ENTER.get(_str(event, "kind"))) is not None:
        enter(ledgers, writer, event)


def _enter_chain(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    writer.chains.append((_int(event, "first"), _int(event, "last")))


def _enter_open(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    writer.role, writer.cluster = _str(event, "name"), _str(event, "reason")
    if writer.cluster:
        ledgers.clusters.add(writer.cluster)


def _enter_seal(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    writer.sealed = True


def _enter_pruned(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    if _int(event, "first") < _int(event, "last"):  # the `pruned` record itself has the last number
        writer.chains.append((_int(event, "first"), _int(event, "last") - 1))
    writer.pruned_us = max(writer.pruned_us, _int(event, "ts_us"))
    writer.pruned_damaged |= _str(event, "reason") == "damaged"


def _enter_definition(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    queue = _str(event, "queue")
    ledgers.queue_names[queue] = _str(event, "name")
    ledgers.definers[queue].add(writer.name)
    if _str(event, "reason") == "replicated":
        ledgers.replicated.add(queue)


def _enter_promotion(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    previous, reason = _str(event, "peer"), _str(event, "reason")
    ledgers.promotions.append(
        Promotion(_int(event, "view"), *writer.process, previous, reason, _int(event, "ts_us"))
    )
    ledgers.members |= {previous} - {""} if reason == STANDALONE else {writer.name, previous} - {""}


def _enter_demotion(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    writer.demoted[_int(event, "view")] = _int(event, "ts_us")


def _enter_change(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    names = tuple(name.strip() for name in _str(event, "name").split(",") if name.strip())
    change = SyncChange(
        _int(event, "view"), *writer.process, _int(event, "wseq"), _str(event, "peer"),
        _str(event, "reason"), names, _int(event, "ts_us"), _int(event, "n"),
    )  # fmt: skip
    ledgers.changes.append(change)
    ledgers.members |= {*names, change.peer} - {""}


def _enter_level(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    if (name := _str(event, "name")) not in LEVELS:
        ledgers.missing.append(f"{writer.name} confirms by a level that this job does not know: {name:.40}")
        return
    at = _int(event, "view"), *writer.process, _int(event, "wseq")
    ledgers.levels.append(LevelChange(*at, LEVELS.index(name), _int(event, "n")))


def _enter_span(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    begin, end, view, kind = (
        _int(event, "ts_us"), _int(event, "ts_last_us"), _int(event, "view"), _str(event, "name")
    )  # fmt: skip
    writer.first_us = min(writer.first_us or begin, begin)
    writer.last_us = max(writer.last_us, end)
    writer.view = max(writer.view, view)
    writer.goes_on |= _str(event, "reason") != PRUNED_NAME
    writer.records[kind] = writer.records.get(kind, 0) + _int(event, "n")
    for seen in (writer.views, writer.enqueues) if kind == "enqueue" else (writer.views,):
        old = seen.get(view, (begin, end))
        seen[view] = (min(old[0], begin), max(old[1], end))
    if kind in TRAFFIC:
        ledgers.served.add(view)


def _enter_link(ledgers: LedgerState, writer: Writer, event: Event) -> None:
    ledgers.linked = True


_ENTER: dict[str, Callable[[LedgerState, Writer, Event], None]] = {
    "chain": _enter_chain,
    "span": _enter_span,
    "open": _enter_open,
    "seal": _enter_seal,
    "pruned": _enter_pruned,
    "definition": _enter_definition,
    "promote": _enter_promotion,
    "demote": _enter_demotion,
    "insync": _enter_change,
    "confirm_level": _enter_level,
    "link": _enter_link,
}
"""Handlers by kind of event."""


def _check_chain(writer: Writer) -> None:
    """Find gaps and repetitions in the writer's own record numbers, which start at 0."""
    expected = 0
    for first, last in sorted(writer.chains):
        if first > expected:
            writer.gaps.append((expected, first - 1))
        elif first < expected:
            writer.repeats.append((first, min(last, expected - 1)))
        expected = max(expected, last + 1)


def _place_torn(ledgers: LedgerState, torn: list[Event]) -> None:
    """A crash excuses one torn last line. Any other unreadable line counts as missing."""
    ledgers.unreadable = len(torn)
    by_file: dict[str, list[Event]] = defaultdict(list)
    for event in torn:
        whose = f"the ledger of {_str(event, 'writer') or '?'} (incarnation {_int(event, 'incarnation')})"
        by_file[unquote(_str(event, "name").rsplit("/", 1)[-1]) or whose].append(event)
    crashed = [w for w in ledgers.writers.values() if w.end == "crashed" and not w.gaps]
    for file, lines in sorted(by_file.items()):
        owners = [w for w in crashed if file.startswith(stem(w))]
        whole = _str(lines[0], "reason") == NOT_PARQUET
        excused = len(lines) == 1 and bool(owners) and not whole and not any(w.torn for w in owners)
        count = "a line of" if len(lines) == 1 else f"{len(lines)} lines of"
        said = f"{'' if whole else count + ' '}{file} cannot be read ({_str(lines[0], 'reason')})"
        if excused:
            owners[0].torn = 1
        else:
            ledgers.missing.append(said)
            ledgers.broken = True
        torn_one = next((w for w in ledgers.writers.values() if file.startswith(stem(w))), None)
        if torn_one is not None and not torn_one.gaps:
            ledgers.holes.append(_torn_tail(torn_one, file, len(lines), excused=excused))


def _torn_tail(writer: Writer, file: str, lines: int, *, excused: bool) -> Hole:
    last = max((last for _, last in writer.chains), default=-1)
    why = f"; {writer.ended_by}" if excused else ""
    called = f"the ledger of {writer.name} (incarnation {writer.incarnation})"
    text = f"{called} ends torn after record {last}, in {file}{why}"
    return Hole("torn-tail", *writer.process, last + 1, last + lines, file, excused, text)


def _find_gaps(ledgers: LedgerState, where: Where) -> None:
    for w in sorted(ledgers.writers.values(), key=lambda w: w.process):
        called = f"the ledger of {w.name} (incarnation {w.incarnation})"
        for first, last in w.gaps:
            place = where(*w.process, first, last)
            numbers = f"{first}..{last}" if first != last else f"{first}"
            said = f"{called} lacks records {numbers}{f' ({place})' if place else ''}"
            ledgers.holes.append(Hole("gap", *w.process, first, last, place, False, said))


def _included_later(ledgers: LedgerState) -> list[tuple[str, int]]:
    """Brokers, each with an epoch in which it got in sync and which is later than any in its own ledgers.

    A broker whose ledger knows no epoch (0) is left out: it may have been killed just then.
    """
    known: dict[str, Writer] = {}
    for writer in sorted(ledgers.writers.values(), key=lambda w: w.incarnation):
        known[writer.name] = writer
    included = {(change.peer, change.view) for change in ledgers.changes if change.reason == "included"}
    return sorted((name, view) for name, view in included if name in known and 0 < known[name].view < view)


def _judge(ledgers: LedgerState) -> None:
    for writer in sorted(ledgers.writers.values(), key=lambda w: w.process):
        _judge_writer(ledgers, writer)
    if len(ledgers.clusters) > 1:
        clusters = ", ".join(sorted(ledgers.clusters))
        ledgers.missing.append(f"ledgers of {len(ledgers.clusters)} clusters are mixed: {clusters}")
    roles = {w.role for w in ledgers.writers.values()}
    if "broker" not in roles:
        ledgers.missing.append("there is no ledger of a broker")
        ledgers.broken = True
    if "producer" not in roles:
        ledgers.missing.append(NO_PRODUCER)
    if absent := list(_absent(ledgers)):
        ledgers.missing += absent
        ledgers.broken = True
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    for promotion in ledgers.promotions:
        owners[ledgers.line_of(promotion), promotion.epoch].add(promotion.node)
    ledgers.two_owners = sorted({epoch for (_, epoch), nodes in owners.items() if len(nodes) > 1})


def _judge_writer(ledgers: LedgerState, w: Writer) -> None:
    say = ledgers.missing.append
    called = f"the ledger of {w.name} (incarnation {w.incarnation})"
    if w.gaps:
        gaps = [h.sentence for h in ledgers.holes if (h.kind, h.writer, h.incarnation) == ("gap", *w.process)]
        say("; ".join([gaps[0], *(text.removeprefix(called).strip() for text in gaps[1:5])]))
        ledgers.broken |= w.role != "producer"
    if w.repeats:
        again = ", ".join(f"{a}..{b}" for a, b in w.repeats[:5])
        say(f"{called} numbers records {again} twice: its count was lost, or records are here twice")
        ledgers.repeated = True
        ledgers.broken |= w.role != "producer"
    if w.pruned_damaged:
        say(f"{called} was damaged where it was pruned, so some of its pruned records are unknown")
        ledgers.broken = True
    if w.end == "unknown":
        say(endless(w))
        ledgers.broken |= w.role != "producer"


def _absent(ledgers: LedgerState) -> Iterator[str]:
    """A sentence for each ledger of a broker that other ledgers mention and that is missing here."""
    present = {w.name for w in ledgers.writers.values()}
    mentioned = {p.previous for p in ledgers.promotions}
    mentioned |= {name for change in ledgers.changes for name in (*change.names, change.peer)}
    for name in sorted(mentioned - present - {""}):
        yield f"the ledgers mention broker {name}, whose ledger is not here"
    for name, view in _included_later(ledgers):
        time = f"the ledgers say that {name} was in sync in epoch {view}"
        yield f"{time}, but its ledger of that time is not here"
    for view in sorted(ledgers.served - {p.epoch for p in ledgers.promotions}):
        yield f"no ledger here opened epoch {view}, so the ledger of its primary is missing"
