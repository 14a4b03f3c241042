"""Faults of primaries, disks, quarantine and the ledgers themselves; rules as in `plant`."""

from __future__ import annotations

from tests.spark.histories.facts import Key
from tests.spark.histories.plant import SOON_US
from tests.spark.histories.spoiler import Spoiler
from tests.spark.records import Process, Record


def acked_returned(s: Spoiler) -> bool:
    """Long after it dequeued an acked id, the primary delivers it to another consumer."""
    owner, view, end = s.facts.owner, s.history.cluster.epoch, s.history.cluster.now
    prompt = prompt_consumers(s, owner[0])
    for process, gone in s.places("dequeue"):
        if (
            process != owner
            or gone["view"] != view
            or gone.get("reason") != "acked"
            or gone["ts_us"] > end - 10 * SOON_US
        ):
            continue

        def good(key: Key) -> bool:
            known = s.facts.ids[key]
            once = len([p for p, _ in known.puts if p == owner]) == 1
            return once and len(known.acked) == 1 and len(known.dequeues) >= 1

        for consumer in sorted(prompt):

            def other(key: Key, consumer: Process = consumer) -> bool:
                return good(key) and all(p != consumer for p, _ in s.facts.ids[key].acked)

            if ids := s.piece(gone, other):
                where = {"queue": gone["queue"], "epoch": gone["epoch"], "first": ids[0], "last": ids[-1]}
                s.at_end(consumer, "received", **where, reason="redelivered")
                s.found("acked-returned", gone["queue"], gone["epoch"], None, process[0], ids)
                return True
    return False


def prompt_consumers(s: Spoiler, node: str) -> set[Process]:
    """Live consumers whose clock is bounded closely on both sides by messages from this broker."""
    below: set[str] = set()
    above: set[str] = set()
    for known in s.facts.ids.values():
        if len(known.received) != 1:
            continue
        (consumer, _), got = known.received[0]
        puts = [r["ts_us"] for (w, _), r in known.puts if w == node and r["kind"] == "enqueue"]
        if puts and got["ts_us"] - puts[0] < SOON_US // 2:
            below.add(consumer)
        ends = [
            (w, r) for (w, _), r in known.dequeues if r["kind"] == "dequeue" and r.get("reason") == "acked"
        ]
        if len(ends) == 1 and ends[0][0] == node and ends[0][1]["ts_us"] - got["ts_us"] < SOON_US // 2:
            above.add(consumer)
    return {c.process for c in s.history.cluster.consumers if c.name in below & above}


def number_doubled(s: Spoiler) -> bool:
    """The primary enqueues a number that it enqueued before."""
    owner, view = s.facts.owner, s.history.cluster.epoch
    for process, run in s.places("enqueue"):
        if process != owner or run["epoch"] != view or "number" not in run:
            continue
        if ids := s.piece(run, lambda key: True):
            number = run["number"] + ids[0] - run["first"]
            again = s.fresh_ids(run["queue"], view, len(ids))
            s.enqueue(owner, view, run["queue"], again, None, None, name=run["name"], number=number)
            s.drop(owner, view, run["queue"], again, "acked")
            s.found("number-doubled", run["queue"], view, None, run["name"], again)
            return True
    return False


def dequeued_twice(s: Spoiler) -> bool:
    for process, gone in s.places("dequeue"):

        def good(key: Key, process: Process = process) -> bool:
            known = s.facts.ids[key]
            mine = [r for p, r in known.dequeues if p == process]
            return len(mine) == 1 and len([p for p, _ in known.puts if p == process]) == 1

        if ids := s.piece(gone, good):
            where = {"queue": gone["queue"], "epoch": gone["epoch"], "first": ids[0], "last": ids[-1]}
            s.after(process, gone, "dequeue", **where, reason=gone.get("reason"))
            s.found("dequeued-twice", gone["queue"], gone["epoch"], None, process[0], ids)
            return True
    return False


def unexplained(s: Spoiler) -> bool:
    """A consumer acked, but the primary records another reason, or none."""
    for process, gone in s.places("dequeue"):
        if gone.get("reason") != "acked":
            continue
        if ids := s.piece(gone, lambda key: bool(s.facts.ids[key].acked)):
            reason = s.rng.choice((None, "evaporated"))
            where = {"queue": gone["queue"], "epoch": gone["epoch"], "first": ids[0], "last": ids[-1]}
            s.after(process, gone, "dequeue", **where, reason=reason)
            s.ledgers.cut([gone], ids[0], ids[-1])
            s.found("unexplained", gone["queue"], gone["epoch"], None, reason, ids)
            return True
    return False


def two_primaries(s: Spoiler) -> bool:
    """A backup opens an epoch that belongs to another node."""
    views = [view for view, _ in s.facts.promotes[:-1]]
    for view in s.rng.sample(views, len(views)):
        owner = next(p for v, p in s.facts.promotes if v == view)
        for process, records in sorted(s.ledgers.records.items()):
            mine = [r for r in records if r["view"] == view]
            if process[0] != owner[0] and mine:
                s.after(process, mine[-1], "promote", peer="", reason="unforced")
                s.found("two-primaries", None, view, None, None, ())
                return True
    return False


def overlap(s: Spoiler) -> bool:
    """A former primary still enqueues and confirms in its epoch, long after another opened the next one."""
    old = [(view, p) for view, p in s.facts.promotes[:-1]]
    for view, owner in s.rng.sample(old, len(old)):
        later = {v for v, p in s.facts.promotes if v > view and p[0] != owner[0]}
        busy = {v for (v, _), runs in s.facts.at.items() if v in later and any("prod" in r for _, r in runs)}
        served = [r for (v, _), runs in s.facts.at.items() if v == view for _, r in runs if "prod" in r]
        if not busy or not served:
            continue
        (process, prod), queue = s.session(), s.some_queue()
        writers = {s.facts.sent[r["prod"], r["pfirst"]][0][0] for r in served}
        if process[0] not in writers:
            continue
        ids = s.fresh_ids(queue, view, 2)
        s.send(process, prod, range(1, 3))
        s.enqueue(owner, view, queue, ids, prod, 1)
        s.drop(owner, view, queue, ids)
        s.at_end(process, "confirmed", prod=prod, first=1, last=2)
        s.found("two-primaries", queue, view, None, "overlap", ids)
        return True
    return False


def enqueued_by_two(s: Spoiler) -> bool:
    """A backup records messages that it copied as enqueued by itself."""
    for _, copy in s.places("backup_enqueue"):
        if (
            copy["epoch"] != copy["view"]
            or "durable" in copy
            or "prod" not in copy
            or copy["last"] - copy["first"] > 20
        ):
            continue

        def good(key: Key, copy: Record = copy) -> bool:
            known = s.facts.ids[key]
            tag = copy["prod"], copy["pfirst"] + key[2] - copy["first"]
            soon = s.facts.confirmed.get(tag, 0) >= copy["ts_us"]
            return soon and all(r["ts_us"] >= copy["ts_us"] for _, r in known.received)

        if s.claim(copy["queue"], copy["epoch"], range(copy["first"], copy["last"] + 1), good):
            copy["kind"] = "enqueue"
            ids = range(copy["first"], copy["last"] + 1)
            s.found("enqueued-by-two", copy["queue"], copy["epoch"], None, None, ids)
            return True
    return False


def quarantined_though_served(s: Spoiler) -> bool:
    brokers = {node.name for node in s.history.cluster.nodes if node.process in s.facts.sealed}
    for copier, run in s.places("enqueue", "backup_enqueue"):
        if not s.facts.promoted_after(copier, run["epoch"]):
            continue
        if ids := s.piece(run, lambda key: not s.facts.ids[key].quarantined and s.facts.ids[key].ended):
            others = [p for p in sorted(s.facts.sealed) if p[0] in brokers and p != copier]
            if not others:
                return False
            where = {"queue": run["queue"], "epoch": run["epoch"], "first": ids[0], "last": ids[-1]}
            s.at_end(s.rng.choice(others), "quarantine", **where)
            s.found("quarantine-differs", run["queue"], run["epoch"], None, "served", ids)
            return True
    return False


def quarantine_missing(s: Spoiler) -> bool:
    """A killed primary rejoins, but never exports messages that only its disk had."""
    on_disk: set[tuple[Process, int, int]] = set()
    for process, noted in s.ledgers.every("durable"):
        on_disk.update((process, noted["epoch"], n) for n in range(noted["first"], noted["last"] + 1))
    for returned, quarantine in s.places("quarantine"):

        def good(key: Key, returned: Process = returned) -> bool:
            known = s.facts.ids[key]
            if len(known.puts) != 1 or known.ended or known.quarantined != 1:
                return False
            process, run = known.puts[0]
            stored = "durable" in run and (process, run["view"], run["n"]) in on_disk
            return stored and process[0] == returned[0] and process[1] < returned[1]

        if ids := s.piece(quarantine, good):
            s.ledgers.cut([quarantine], ids[0], ids[-1])
            s.found("quarantine-differs", quarantine["queue"], quarantine["epoch"], None, "missing", ids)
            return True
    return False


def torn(s: Spoiler) -> bool:
    """A backup applies all of a transaction except one publish."""
    acked = {
        (r["epoch"], r["peer"], n) for _, r in s.facts.replicated for n in range(r["first"], r["last"] + 1)
    }
    for commit in s.rng.sample(s.facts.commits, len(s.facts.commits)):
        tags = range(commit["first"], commit["last"] + 1)
        place = commit["view"], commit["n"], commit["prod"]
        copies_of = s.ledgers.every("backup_enqueue")
        mine = [(p, r) for p, r in copies_of if (r["view"], r["n"], r.get("prod")) == place]
        givers = {p for p, r in s.ledgers.every("enqueue") if (r["view"], r["n"], r.get("prod")) == place}
        for process in sorted(
            {p for p, _ in mine} - givers
        ):  # not a node that recorded part of it as enqueued by itself
            copies = [r for p, r in mine if p == process]
            entered = {r["pfirst"] + i for r in copies for i in range(r["last"] - r["first"] + 1)}
            if len(entered) < 2 or (commit["view"], process[0], commit["n"]) not in acked:
                continue
            if process not in s.facts.sealed or not take(s, copies):
                continue
            tag = s.rng.choice(sorted(entered))
            for run in copies:
                number = run["first"] + tag - run["pfirst"]
                s.ledgers.cut([run], number, number)
            s.found("torn", None, None, commit["prod"], process[0], tags)
            return True
    return False


def take(s: Spoiler, runs: list[Record]) -> bool:
    keys = [(r["queue"], r["epoch"], i) for r in runs for i in range(r["first"], r["last"] + 1)]
    sound = all(s.facts.ids[key].ended and key not in s.claimed for key in keys)
    if sound:
        s.claimed.update(keys)
    return sound


def gap(s: Spoiler) -> bool:
    """A heartbeat record is missing, which leaves a gap in the record numbers."""
    for process, beat in s.places("heartbeat"):
        s.gaps.append((process, beat))
        return True
    return False


def endless(s: Spoiler) -> bool:
    """A client was killed before it was started again: its former life has no seal."""
    for process, seal in s.places("seal"):
        if (process[0], process[1] + 1) in s.ledgers.records and s.ledgers.records[process][-1] is seal:
            s.ledgers.records[process].pop()
            s.endless.append(process)
            return True
    return False


def torn_tail(s: Spoiler) -> bool:
    """A kill leaves half a line at the end of a ledger."""
    for process in sorted(s.ledgers.records):
        if process not in s.facts.sealed and process[0] in {node.name for node in s.history.cluster.nodes}:
            s.ledgers.torn[process] = '{"v":2,"writer":"' + process[0]
            return True
    return False
