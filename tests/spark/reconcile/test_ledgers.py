"""What makes a proof impossible, and what does not: judged from a few events, no Spark (invariant 30)."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.checks.dequeues import digits
from spark.reconcile.ledgers.assemble import assemble
from spark.reconcile.ledgers.ends import ENDLESS
from spark.reconcile.ledgers.state import LedgerState
from spark.reconcile.verdict.result import ALLOWED, UNKNOWN, VIOLATION, bands, severity

NAMES = "writer incarnation wseq ts_us ts_last_us view first last n kind reason name peer queue".split()  # noqa: SIM905


def event(kind: str, writer: str = "a", incarnation: int = 1, **fields: Any) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "kind": kind, "writer": writer, "incarnation": incarnation, **fields}


def life(
    writer: str,
    role: str,
    *,
    incarnation: int = 1,
    view: int = 0,
    sealed: bool = True,
    last: int = 9,
    cluster: str = "",
) -> list[dict[str, Any]]:
    me = writer, incarnation
    out = [
        event("open", *me, name=role, reason=cluster),
        event("chain", *me, first=0, last=last),
        event("span", *me, view=view, name="heartbeat", ts_us=1, ts_last_us=9, n=last + 1),
    ]
    return [*out, event("seal", *me)] if sealed else out


def pair(*more: dict[str, Any], a_sealed: bool = False) -> LedgerState:
    """`a` served epoch 1 and ended without a seal, `b` serves epoch 2; one producer, one consumer."""
    promote = [event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=1)]
    promote.append(event("promote", "b", view=2, peer="a", reason="unforced", ts_us=5))
    lives = life("a", "broker", view=1, sealed=a_sealed) + life("b", "broker", view=2)
    return assemble([*lives, *life("p", "producer"), *life("c", "consumer"), *promote, *more])


def test_a_killed_primary_is_excused_by_its_successor() -> None:
    ledgers = pair()
    assert ledgers.missing == [] and not ledgers.broken
    assert (ledgers.writers["a", 1].end, ledgers.writers["a", 1].ended_by) == (
        "crashed",
        "b was promoted in its place",
    )
    assert ledgers.inventory().complete and ledgers.inventory().owners == (("b", 1),)


def test_a_primary_that_was_demoted_is_active_no_longer_though_its_heart_beats() -> None:
    ledgers = pair(event("demote", "a", view=1, ts_us=4, reason="switchover"))
    told = [(b["node"], b["epoch"], b["state"], b["from_us"], b["to_us"]) for b in bands(ledgers)]
    assert told == [("a", 1, "active", 1, 4), ("a", 1, "joining", 4, 9), ("b", 2, "active", 1, 9)]


def test_a_killed_backup_is_excused_by_its_exclusion() -> None:
    excluded = event("insync", "b", view=2, wseq=7, peer="x", reason="excluded", name="b", n=5)
    assert pair(excluded, *life("x", "broker", view=2, sealed=False)).missing == []


def test_an_exclusion_before_a_later_inclusion_excuses_nothing() -> None:
    changes = [
        event("insync", "b", view=2, wseq=wseq, peer="x", reason=reason, name="b", n=5)
        for wseq, reason in ((7, "excluded"), (8, "included"))
    ]
    assert (
        "no ledger shows that it crashed"
        in pair(*changes, *life("x", "broker", view=2, sealed=False)).missing[0]
    )


def test_an_old_promotion_does_not_excuse_a_later_life() -> None:
    ledgers = pair(*life("a", "broker", incarnation=2, view=2, sealed=False))
    assert ledgers.writers["a", 1].end == "crashed"
    assert ledgers.writers["a", 2].end == "unknown" and ledgers.broken


@pytest.mark.parametrize("role", ["broker", "consumer", "producer"])
def test_a_ledger_without_an_end_is_missing_something(role: str) -> None:
    ledgers = pair(*life("z", role, view=2, sealed=False))
    why = f"{ENDLESS[role]}{UNTIL}" if role in ENDLESS else "and no ledger shows that it crashed"
    assert ledgers.missing == [f"the ledger of z (incarnation 1) has no end, {why}"]
    assert ledgers.broken == (role != "producer")


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_a_later_life_of_a_client_does_not_say_how_a_former_one_ended(role: str) -> None:
    """What a client notes late is in no ledger then, and its lives may run at once."""
    ledgers = pair(*life("z", role, sealed=False), *life("z", role, incarnation=2))
    assert ledgers.missing == [f"the ledger of z (incarnation 1) has no end, {ENDLESS[role]}{UNTIL}"]
    assert (ledgers.writers["z", 1].end, ledgers.writers["z", 1].ended_by) == ("unknown", "")
    assert ledgers.broken == (role != "producer")


DAY = 86_400_000_000
UNTIL = "; it blocks a proof until `understudy ledger prune` moves the brokers' ledgers past 1970-01-02"
UNTIL += " 00:00:00 UTC"


def ledgers_of(begins: dict[str, int], role: str = "producer", ended: str = "") -> LedgerState:
    """Of killed client z, whose last record is of 9 us after 1970, a sealed client, and brokers of these
    names, pruned up to then (0: not); of `ended` wholly."""
    lives = [*life("z", role, sealed=False), *life("p", "producer"), *life("c", "consumer")]
    for number, (name, begin) in enumerate(begins.items()):
        reason = "unforced" if number else "bootstrap"
        previous = list(begins)[number - 1] if number else ""
        left = {"reason": "pruned"} if name == ended else {}
        lives += [e | left if e["kind"] == "span" else e for e in life(name, "broker", view=number + 1)]
        lives.append(event("promote", name, view=number + 1, peer=previous, reason=reason, ts_us=1))
        lives += [event("pruned", name, first=2, last=3, ts_us=begin)] if begin else []
    return assemble(lives, let_go=True)


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_a_client_without_an_end_counts_until_the_brokers_ledgers_begin_a_day_later(role: str) -> None:
    early = ledgers_of({"a": DAY + 8}, role)
    assert early.writers["z", 1].end == "unknown" and len([m for m in early.missing if "no end" in m]) == 1
    later = ledgers_of({"a": DAY + 9}, role)
    assert later.writers["z", 1].end == "outlived" and not any("no end" in m for m in later.missing)
    assert severity("unsent", None, None, later) == UNKNOWN, "it may have lived on without its ledger"


def test_each_broker_must_have_been_pruned_that_far() -> None:
    late = 2 * DAY
    assert ledgers_of({"a": late, "b": 0}).writers["z", 1].end == "unknown", "b tells of that time"
    assert ledgers_of({"a": late, "b": 5}).writers["z", 1].end == "unknown"
    assert ledgers_of({"a": late, "b": late}).writers["z", 1].end == "outlived"
    gone = ledgers_of({"a": late, "b": 5}, ended="b")
    assert gone.writers["z", 1].end == "outlived", "nothing of b is judged"


def test_ledgers_that_were_never_pruned_let_no_client_go() -> None:
    """Whose brokers' ledgers begin later: those of its time may be missing."""
    lives = [*life("z", "consumer", sealed=False), *life("p", "producer"), *life("a", "broker", view=1)]
    lives = [e | {"ts_us": 3 * DAY, "ts_last_us": 3 * DAY} if e["writer"] == "a" else e for e in lives]
    promote = event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=3 * DAY)
    ledgers = assemble([*lives, promote], let_go=True)
    assert ledgers.writers["z", 1].end == "unknown" and ledgers.broken


def test_a_gap_of_a_client_that_is_outlived_still_is_one() -> None:
    lives = [*life("z", "producer", sealed=False), event("chain", "z", first=12, last=20)]
    lives += [*life("a", "broker", view=1), *life("p", "producer")]
    lives.append(event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=1))
    lives.append(event("pruned", "a", first=2, last=3, ts_us=2 * DAY))
    ledgers = assemble(lives, let_go=True)
    assert ledgers.writers["z", 1].end == "outlived"
    assert "the ledger of z (incarnation 1) lacks records 10..11" in ledgers.missing


def test_a_later_life_of_a_broker_says_that_the_former_one_crashed() -> None:
    ledgers = pair(*life("z", "broker", view=2, sealed=False), *life("z", "broker", incarnation=2, view=2))
    assert ledgers.missing == [] and ledgers.writers["z", 1].ended_by == "z started again"


def test_a_client_with_the_name_of_a_broker_excuses_nothing() -> None:
    ledgers = pair(*life("z", "broker", view=2, sealed=False), *life("z", "producer", incarnation=2))
    assert ledgers.writers["z", 1].end == "unknown" and ledgers.broken


def test_what_a_killed_producer_had_not_noted_is_unknown_not_invented() -> None:
    """It came to the broker, and its `sent` was in memory yet: also if the producer was started again."""
    whole, killed = pair(), pair(*life("z", "producer", sealed=False), *life("z", "producer", incarnation=2))
    assert severity("unsent", None, None, whole) == VIOLATION
    assert severity("unsent", None, None, killed) == UNKNOWN
    assert severity("lost", None, 2, killed) == VIOLATION, "what it did note is known"


def test_a_gap_is_never_excused() -> None:
    ledgers = pair(event("chain", "a", first=12, last=20))
    assert ledgers.missing == ["the ledger of a (incarnation 1) lacks records 10..11"]
    assert ledgers.broken


def test_holes_are_named_with_writer_numbers_and_file() -> None:
    """The gap by whoever knows the files, the torn tail by the file's own name; excused only after a kill."""
    lives = [*life("a", "broker", view=1), event("chain", "a", first=12, last=20)]
    torn = event("malformed", "", 0, name="file:/x/p-1-0.ledger.jsonl", reason="not a JSON record")
    asked: list[tuple[str, int, int, int]] = []

    def where(*gap: Any) -> str:
        asked.append(gap)
        return "in a-1-0"

    ledgers = assemble([*lives, *life("p", "producer"), torn], where)
    assert asked == [("a", 1, 10, 11)]
    assert [(h.kind, h.writer, h.incarnation, h.first, h.last, h.file, h.excused) for h in ledgers.holes] == [
        ("torn-tail", "p", 1, 10, 10, "p-1-0.ledger.jsonl", False),
        ("gap", "a", 1, 10, 11, "in a-1-0", False),
    ]
    assert "the ledger of a (incarnation 1) lacks records 10..11 (in a-1-0)" in ledgers.missing
    torn["name"] = "file:/x/a-1-0.ledger.jsonl"
    [tail] = pair(torn).holes
    assert tail.excused and tail.sentence == (
        "the ledger of a (incarnation 1) ends torn after record 9, in a-1-0.ledger.jsonl;"
        " b was promoted in its place"
    )


def test_pruned_records_are_no_gap() -> None:
    pruned = event("pruned", "z", first=3, last=5, ts_us=1_700_000_000_000_000)
    lives = [e for e in life("z", "consumer", last=2) if e["kind"] != "seal"]
    rest = [event("chain", "z", first=5, last=9), event("seal", "z")]
    ledgers = pair(*lives, pruned, *rest)
    assert ledgers.missing == [] == ledgers.holes and not ledgers.broken
    assert ledgers.pruned_us == 1_700_000_000_000_000


def test_what_was_pruned_unread_is_missing() -> None:
    pruned = event("pruned", "z", first=3, last=5, reason="damaged")
    lives = [e for e in life("z", "consumer", last=2) if e["kind"] != "seal"]
    ledgers = pair(*lives, pruned, event("chain", "z", first=5, last=9), event("seal", "z"))
    assert ledgers.missing == [
        "the ledger of z (incarnation 1) was damaged where it was pruned, so some of its pruned records"
        " are unknown"
    ]
    assert ledgers.broken


def test_two_owners_of_one_epoch_in_two_clusters_are_nothing() -> None:
    other = [*life("x", "broker", view=1, cluster="two"), event("promote", "x", view=1, peer="", ts_us=1)]
    promote = event("promote", "a", view=1, peer="", ts_us=1)
    ledgers = assemble([*life("a", "broker", view=1, cluster="one"), promote, *other])
    assert ledgers.two_owners == [] and "ledgers of 2 clusters are mixed: one, two" in ledgers.missing


def test_processes_that_served_near_each_other_do_not_share_a_digit() -> None:
    lives = [e for n in range(20) for e in life("ab"[n % 2], "broker", incarnation=n, view=n + 1)]
    opened = [event("promote", "ab"[n % 2], n, view=n + 1, peer="", ts_us=n) for n in range(20)]
    given = digits(assemble([*lives, *opened]))
    order = [given["ab"[n % 2], n] for n in range(20)]
    assert all(len(set(order[n : n + 15])) == 15 for n in range(6))
    assert sum(order[:15]) == 0x0111_1111_1111_1111


def test_a_ledger_that_does_not_begin_at_its_beginning_lacks_it() -> None:
    lives = [e for e in life("z", "consumer") if e["kind"] not in ("chain", "open")]
    assert "lacks records 0..3" in pair(*lives, event("chain", "z", first=4, last=9)).missing[0]


def test_numbers_used_twice_are_seen() -> None:
    ledgers = pair(event("chain", "c", first=3, last=5))
    why = "its count was lost, or records are here twice"
    assert ledgers.missing == [f"the ledger of c (incarnation 1) numbers records 3..5 twice: {why}"]
    assert severity("duplicate-illegal", None, 2, ledgers) == UNKNOWN
    assert severity("lost", None, 2, ledgers) == UNKNOWN, "two lives under one name: which was the last?"


def test_a_torn_last_line_of_a_killed_writer_is_what_a_kill_leaves() -> None:
    ledgers = pair(event("malformed", "", 0, name="file:/x/a-1-0.ledger.jsonl", reason="not a JSON record"))
    assert ledgers.missing == [] and ledgers.writers["a", 1].torn == 1 and ledgers.unreadable == 1


def test_any_other_unreadable_line_is_missing() -> None:
    torn = [event("malformed", "", 0, name="file:/x/b-1-0.ledger.jsonl", reason="not a JSON record")] * 2
    ledgers = pair(*torn)
    assert (
        ledgers.missing == ["2 lines of b-1-0.ledger.jsonl cannot be read (not a JSON record)"]
        and ledgers.broken
    )


@pytest.mark.parametrize(
    "file", ["x.ledger.jsonl", "a.ledger.jsonl", "ab-1-0.ledger.jsonl", "a-2-0.ledger.jsonl"]
)
def test_a_killed_writer_does_not_excuse_a_file_that_is_not_its_own(file: str) -> None:
    ledgers = pair(event("malformed", "", 0, name=f"file:/x/{file}", reason="not a JSON record"))
    assert ledgers.missing == [f"a line of {file} cannot be read (not a JSON record)"] and ledgers.broken


def test_a_whole_line_that_makes_no_sense_is_named_by_its_writer_and_never_excused() -> None:
    ledgers = pair(event("malformed", "a", 1, reason="fields missing, reversed or out of range"))
    why = "cannot be read (fields missing, reversed or out of range)"
    assert ledgers.missing == [f"a line of the ledger of a (incarnation 1) {why}"] and ledgers.broken


def test_the_torn_line_of_a_writer_with_an_odd_name_is_its_own() -> None:
    torn = event("malformed", "", 0, name="file:/x/a%2520b-1-0.ledger.jsonl", reason="not a JSON record")
    ghost = event("promote", "b", view=3, peer="a b", reason="unforced", ts_us=6)
    ledgers = pair(torn, ghost, *life("a b", "broker", view=2, sealed=False))
    assert ledgers.missing == [] and ledgers.writers["a b", 1].torn == 1


def test_two_clusters_do_not_mix() -> None:
    ledgers = pair(*life("y", "broker", view=2, cluster="one"), *life("z", "broker", view=2, cluster="two"))
    assert ledgers.missing == ["ledgers of 2 clusters are mixed: one, two"]


def test_a_broker_that_others_speak_of_must_be_here() -> None:
    included = event("insync", "b", view=2, wseq=7, peer="ghost", reason="included", name="b,ghost", n=5)
    assert pair(included).missing == ["the ledgers mention broker ghost, whose ledger is not here"]


def test_an_epoch_with_traffic_that_nobody_opened_lacks_its_primary() -> None:
    """The dead primary came back under its old name: only its first life's ledger is missing."""
    copied = event("span", "b", view=1, name="backup_enqueue", ts_us=1, ts_last_us=2, n=1)
    promote = event("promote", "b", view=2, peer="a", reason="unforced", ts_us=5)
    lives = life("a", "broker", incarnation=2, view=2) + life("b", "broker", view=2)
    ledgers = assemble([*lives, *life("p", "producer"), promote, copied])
    assert ledgers.missing == ["no ledger here opened epoch 1, so the ledger of its primary is missing"]
    assert ledgers.broken and pair(copied).missing == []


def test_a_rejoined_broker_whose_later_ledger_is_not_here_is_missing() -> None:
    included = event("insync", "b", view=2, wseq=7, peer="a", reason="included", name="a,b", n=5)
    ledgers = pair(included)
    lacks = "the ledgers say that a was in sync in epoch 2, but its ledger of that time is not here"
    assert ledgers.missing == [lacks] and ledgers.broken
    assert pair(included, *life("a", "broker", incarnation=2, view=2)).missing == []


def test_another_schema_version_is_said() -> None:
    assert "schema version 2" in pair(event("version", "", 0, name="2", n=5)).missing[0]


def test_one_epoch_with_two_owners_is_seen() -> None:
    assert pair(event("promote", "a", view=2, peer="", reason="unforced", ts_us=6)).two_owners == [2]


def test_without_producers_nothing_is_known_to_be_confirmed() -> None:
    ledgers = assemble([*life("a", "broker", view=1), event("promote", "a", view=1, peer="", ts_us=1)])
    assert ledgers.missing == ["there is no ledger of a producer, so the confirmed messages are unknown"]


def test_what_was_not_seen_counts_only_in_whole_ledgers() -> None:
    whole, broken = pair(), pair(event("chain", "a", first=12, last=20))
    assert severity("lost", None, 1, whole) == VIOLATION
    assert severity("lost", None, 1, broken) == UNKNOWN
    assert severity("duplicate-illegal", None, 1, broken) == VIOLATION
    assert severity("duplicate-redelivered", None, 1, broken) == ALLOWED


def test_deliveries_past_the_end_of_a_killed_primary_are_unknown_not_invented() -> None:
    assert severity("never-published", "beyond", 1, pair()) == UNKNOWN
    assert severity("never-published", "beyond", 2, pair()) == VIOLATION
    assert severity("never-published", None, 1, pair()) == VIOLATION


def test_without_a_clean_end_of_the_last_owner_absence_is_unknown() -> None:
    lives = life("a", "broker", view=1, sealed=False) + life("p", "producer")
    ledgers = assemble([*lives, event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=1)])
    assert not ledgers.inventory().complete
    ledgers.broken = False
    assert severity("lost", None, 1, ledgers) == UNKNOWN
