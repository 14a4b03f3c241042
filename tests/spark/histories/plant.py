"""Faults: each function spoils a correct history in one place, and states exactly what must be found.

If there is no place for the fault, the function returns False and leaves the history unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.spark.histories.facts import Key
from tests.spark.histories.spoiler import Spoiler
from tests.spark.records import Process, Record

SOON_US = 1_000_000
EARLY_US = 700_000
"""Time between the early confirm and the exclusion: far above the tolerance and the error of the clocks."""


def lost(s: Spoiler) -> bool:
    """Confirmed messages without a trace of an end. Some were received, but no ack is in the ledgers."""

    def good(key: Key) -> bool:
        known = s.facts.ids[key]
        copied = len({process for process, _ in known.puts}) > 1
        kept = copied or all(process in s.facts.sealed for process, _ in known.puts)
        run = next((r for _, r in known.puts if r["kind"] == "enqueue"), None)
        return kept and not known.quarantined and bool(run) and s.facts.is_confirmed(run or {}, key[2])

    for _, run in s.places("enqueue"):
        if "prod" in run and (ids := s.piece(run, good)):
            where = run["queue"], run["epoch"]
            seen = s.rng.random() < 0.4 and all(s.facts.ids[(*where, i)].received for i in ids)
            kinds = [
                "dequeue",
                "backup_dequeue",
                "acked",
                "present",
                "quiesce",
                *([] if seen else ["received"]),
            ]
            s.ledgers.cut(s.about(run, *kinds), ids[0], ids[-1])
            s.found("lost", *where, None, "received" if seen else None, ids)
            return True
    return False


def unplaced(s: Spoiler) -> bool:
    process, prod = s.session()
    tags = range(1, s.rng.randint(2, 5))
    s.send(process, prod, tags)
    s.at_end(process, "confirmed", prod=prod, first=tags[0], last=tags[-1])
    s.found("unplaced", None, None, prod, None, tags)
    return True


def duplicate_illegal(s: Spoiler) -> bool:
    """The same consumer at once receives the same ids again, without the flag."""
    for process, got in s.places("received"):
        if "reason" not in got and (ids := s.piece(got, lambda key: s.facts.ids[key].fresh == 1)):
            where = {"queue": got["queue"], "epoch": got["epoch"]}
            s.after(process, got, "received", **where, first=ids[0], last=ids[-1])
            s.found("duplicate-illegal", got["queue"], got["epoch"], None, None, ids)
            return True
    return False


def resent_confirmed(s: Spoiler) -> bool:
    """A producer resends messages that had been confirmed; consumers receive both."""
    living = {producer.process for producer in s.history.cluster.producers}

    def good(key: Key) -> bool:
        known = s.facts.ids[key]
        run = next((r for _, r in known.puts if r["kind"] == "enqueue"), None)
        if run is None or "prod" not in run or not s.facts.is_confirmed(run, key[2]) or not known.received:
            return False
        sent = s.facts.sent[run["prod"], run["pfirst"] + key[2] - run["first"]]
        return sent[0] in living and s.facts.sends[sent] == 1

    for _, run in s.places("enqueue"):
        if ids := s.piece(run, good):
            source, logical = s.facts.sent[run["prod"], run["pfirst"] + ids[0] - run["first"]]
            s.sessions += 1
            prod, tags = f"{source[0]}.{s.sessions}/1", range(1, len(ids) + 1)
            owner, view = s.facts.owner, s.history.cluster.epoch
            new = s.fresh_ids(run["queue"], view, len(ids))
            s.send(source, prod, tags, logical)
            s.enqueue(owner, view, run["queue"], new, prod, 1)
            s.at_end(source, "confirmed", prod=prod, first=1, last=tags[-1])
            consumer = s.rng.choice(s.history.cluster.consumers).process
            for kind in ("received", "acked"):
                s.at_end(consumer, kind, queue=run["queue"], epoch=view, first=new[0], last=new[-1])
            s.drop(owner, view, run["queue"], new, "acked")
            stream = f"{source[0]}#{source[1]}"
            s.found("duplicate-illegal", run["queue"], None, stream, None, range(logical, logical + len(ids)))
            return True
    return False


def reordered(s: Spoiler) -> bool:
    """A consumer receives the second half of a fresh run before the first half."""
    for process, got in s.places("received"):
        whole = range(got["first"], got["last"] + 1)
        where = got["queue"], got["epoch"]
        if "reason" in got or not 2 <= len(whole) <= 12:
            continue
        if s.claim(*where, whole, lambda key: s.facts.ids[key].fresh == 1):
            half = s.rng.randrange(1, len(whole))
            s.after(
                process, got, "received", queue=where[0], epoch=where[1], first=whole[0], last=whole[half - 1]
            )
            got["first"] = whole[half]
            s.found("reordered", *where, None, None, whole[:half])
            return True
    return False


def reordered_enqueue(s: Spoiler) -> bool:
    """An earlier publish of a session has the later id."""
    (process, prod), queue = s.session(), s.some_queue()
    owner, view = s.facts.owner, s.history.cluster.epoch
    ids = s.fresh_ids(queue, view, 4)
    s.send(process, prod, range(1, 5))
    s.enqueue(owner, view, queue, ids[:2], prod, 3)
    s.enqueue(owner, view, queue, ids[2:], prod, 1)
    s.at_end(process, "confirmed", prod=prod, first=1, last=4)
    s.drop(owner, view, queue, ids)
    s.found("reordered-enqueue", queue, view, prod, None, ids[2:])
    return True


def enqueued_twice(s: Spoiler) -> bool:
    """One publish has two ids in one queue."""
    (process, prod), queue = s.session(), s.some_queue()
    owner, view = s.facts.owner, s.history.cluster.epoch
    ids = s.fresh_ids(queue, view, 4)
    s.send(process, prod, range(1, 3))
    s.enqueue(owner, view, queue, ids[:2], prod, 1)
    s.enqueue(owner, view, queue, ids[2:], prod, 1)
    s.at_end(process, "confirmed", prod=prod, first=1, last=2)
    s.drop(owner, view, queue, ids)
    s.found("enqueued-twice", queue, view, prod, None, ids[2:])
    return True


def early_copy(s: Spoiler) -> bool:
    """A backup's ack of one position is missing; those before and after it are present."""
    for _, ack in s.shuffled(s.facts.replicated):
        for n in range(ack["first"], ack["last"]) if ack["reason"] == "applied" else []:
            runs = s.facts.at.get((ack["epoch"], n), [])
            if any("durable" in r for _, r in runs) or not take_position(s, ack["epoch"], n, lambda r: True):
                continue
            acks = [r for _, r in s.ledgers.every("replicated") if same(r, ack, "epoch", "peer")]
            s.ledgers.cut(acks, n, n)
            for _, run in runs:
                ids = range(run["first"], run["last"] + 1)
                s.found("early", run["queue"], run["epoch"], None, None, ids)
            return True
    return False


def same(a: Record, b: Record, *fields: str) -> bool:
    return all(a.get(name) == b.get(name) for name in fields)


def take_position(s: Spoiler, view: int, n: int, wanted: Callable[[Record], bool]) -> bool:
    """Claim all ids of a position, if all its runs have a session and all its ids are confirmed."""
    runs = [r for _, r in s.facts.at.get((view, n), [])]
    mine = [r for r in runs if wanted(r)]
    if not mine or any("prod" not in r for r in runs):
        return False
    spans = [(r, range(r["first"], r["last"] + 1)) for r in runs]
    if not all(s.facts.is_confirmed(r, i) for r, span in spans for i in span):
        return False
    for r, span in spans:
        around = range(span[0] - 3, span[-1] + 4)
        if any((r["queue"], r["epoch"], i) in s.claimed for i in around):
            return False
    for r, span in spans:
        s.claimed.update((r["queue"], r["epoch"], i) for i in span)
    return True


def early_disk(s: Spoiler, kind: str, level: str | None = None) -> bool:
    """One disk never recorded a position with durable messages. With a `level` of confirms at that position
    which does not wait for the disk, that is no finding."""
    for process, noted in s.places(kind):
        if kind == "replicated" and noted["reason"] != "durable":
            continue
        for n in range(noted["first"], noted["last"]):
            if not take_position(s, noted["epoch"], n, lambda r: "durable" in r):
                continue
            node = process[0] if kind == "durable" else noted["peer"]
            if level is not None:
                s.after(process, noted, "confirm_level", name="all-disks", n=n + 1)
                s.after(process, noted, "confirm_level", name=level, n=n)
            told = [r for _, r in s.ledgers.every(kind) if same(r, noted, "epoch", "peer", "reason")]
            s.ledgers.cut(told, n, n)
            for _, run in s.facts.at[noted["epoch"], n]:
                if "durable" in run and level is None:
                    ids = range(run["first"], run["last"] + 1)
                    s.found("early", run["queue"], run["epoch"], None, f"disk of {node}", ids)
            return True
    return False


def early_before_exclusion(s: Spoiler) -> bool:
    """A message is confirmed at once, although an in-sync backup has not acked it and is excluded
    only later."""
    for owner, change in s.places("insync"):
        if change["reason"] != "excluded":
            continue
        before = s.ledgers.records[owner][: s.index(owner, change)]
        mine = [r for r in before if r["kind"] == "replicated" and same(r, change, "view", "peer")]
        joined = [r["n"] for r in before if r["kind"] == "insync" and same(r, change, "view", "peer")]
        told = max((r["last"] for r in mine), default=0)
        for n in range(max(told + 1, *joined[-1:]), change["n"]) if joined else []:
            runs = s.facts.at.get((change["view"], n), [])
            waited = [change["ts_us"] - r["ts_us"] for _, r in runs]
            if not waited or min(waited) < EARLY_US or any("durable" in r for _, r in runs):
                continue
            if take_position(s, change["view"], n, lambda r: True):
                tags = {(run["pfirst"], run["last"] - run["first"]): run for _, run in runs}
                for run in (
                    tags.values()
                ):  # one publish may go to several queues, and one position may have several publishes
                    confirm_at_once(s, run)
                for _, run in runs:
                    ids = range(run["first"], run["last"] + 1)
                    s.found("early", run["queue"], run["epoch"], None, None, ids)
                return True
    return False


def confirm_at_once(s: Spoiler, run: Record) -> None:
    """Move the confirm of a run to just after its enqueue."""
    prod, first = run["prod"], run["pfirst"]
    last = first + run["last"] - run["first"]
    s.ledgers.cut([r for _, r in s.ledgers.every("confirmed") if r["prod"] == prod], first, last)
    sends = [(p, r) for p, r in s.ledgers.every("sent") if r["prod"] == prod]
    process, sent = next((p, r) for p, r in sends if r["first"] <= first <= r["last"])
    s.after(process, sent, "confirmed", prod=prod, first=first, last=last)["ts_us"] = run["ts_us"] + 50


def early_own_disk(s: Spoiler) -> bool:
    return early_disk(s, "durable")


def early_backup_disk(s: Spoiler) -> bool:
    return early_disk(s, "replicated")


def own_disk_not_waited_for(s: Spoiler) -> bool:
    return early_disk(s, "durable", "all-memory")


def backup_disk_not_waited_for(s: Spoiler) -> bool:
    return early_disk(s, "replicated", s.rng.choice(("primary-disk", "all-memory")))


def copy_differs(s: Spoiler) -> bool:
    """At a consistency checkpoint, one node does not list an id."""
    noted: dict[str, Counter[Process]] = {}
    for process, record in s.ledgers.every("quiesce"):
        noted.setdefault(record["name"], Counter())[process] += 1
    for process, listed in s.places("quiesce"):
        nodes = noted[listed["name"]]
        # without its only record it would not be part of the checkpoint
        alone = nodes[process] == 1 and listed["first"] == listed["last"]
        if len({writer for writer, _ in nodes}) < 2 or listed["first"] > listed["last"] or alone:
            continue
        if ids := s.piece(listed, lambda key: True, most=1):
            s.ledgers.cut([listed], ids[0], ids[0])
            s.found("copy-differs", listed["queue"], listed["epoch"], None, listed["name"], ids)
            return True
    return False


def never_published(s: Spoiler) -> bool:
    queue, first = s.some_queue(), next(s.names)
    ids = range(first, first + s.rng.randint(1, 3))
    consumer = s.rng.choice(s.history.cluster.consumers).process
    epoch = s.history.cluster.epoch
    where = {"first": ids[0], "last": ids[-1]}
    s.at_end(consumer, "received", queue=queue, epoch=epoch, **where, reason="redelivered")
    s.found("never-published", queue, epoch, None, "beyond", ids)
    return True


def unsent(s: Spoiler) -> bool:
    """Messages are enqueued for a session with tags that it never sent."""
    sent = s.shuffled(s.ledgers.every("sent"))
    if not sent:
        return False
    prod, queue = sent[0][1]["prod"], s.some_queue()
    owner, view = s.facts.owner, s.history.cluster.epoch
    ids, first = s.fresh_ids(queue, view, 3), next(s.names)
    s.enqueue(owner, view, queue, ids, prod, first)
    s.drop(owner, view, queue, ids, "purged")
    s.found("unsent", None, None, prod, None, range(first, first + 3))
    return True


def unaccounted(s: Spoiler) -> bool:
    """Messages of a publisher without a ledger vanish from the last primary."""
    queue, owner, view = s.some_queue(), s.facts.owner, s.history.cluster.epoch
    ids = s.fresh_ids(queue, view, 3)
    s.enqueue(owner, view, queue, ids, None, None)
    s.found("unaccounted", queue, view, None, None, ids)
    return True
