"""What prevents a proof and what does not, judged from a few events; without Spark (invariant 30)."""

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
    """The state of a pair: `a` served epoch 1 and has no seal, `b` serves epoch 2; one producer, one
    consumer."""
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


def test_a_demoted_primary_is_not_active_despite_heartbeats() -> None:
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
def test_a_ledger_without_an_end_is_reported(role: str) -> None:
    ledgers = pair(*life("z", role, view=2, sealed=False))
    why = f"{ENDLESS[role]}{UNTIL}" if role in ENDLESS else "and no ledger shows that it crashed"
    assert ledgers.missing == [f"the ledger of z (incarnation 1) has no end, {why}"]
    assert ledgers.broken == (role != "producer")


@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_a_later_life_of_a_client_does_not_excuse_an_earlier_one(role: str) -> None:
    """A client may have unwritten records when it is killed, and its lives may overlap."""
    ledgers = pair(*life("z", role, sealed=False), *life("z", role, incarnation=2))
    assert ledgers.missing == [f"the ledger of z (incarnation 1) has no end, {ENDLESS[role]}{UNTIL}"]
    assert (ledgers.writers["z", 1].end, ledgers.writers["z", 1].ended_by) == ("unknown", "")
    assert ledgers.broken == (role != "producer")


DAY = 86_400_000_000
UNTIL = "; it blocks a proof until `understudy ledger prune` moves the brokers' ledgers past 1970-01-02"
UNTIL += " 00:00:00 UTC"


def ledgers_of(begins: dict[str, int], role: str = "producer", ended: str = "") -> LedgerState:
    """The state with a killed client z, whose last record is 9 us after 1970, a sealed client, and brokers.

    `begins`: broker -> time up to which its ledger is pruned (0: not pruned). `ended`: a broker of which only
    pruned records remain.
    """
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
def test_a_client_without_an_end_counts_until_brokers_begin_a_day_later(role: str) -> None:
    early = ledgers_of({"a": DAY + 8}, role)
    assert early.writers["z", 1].end == "unknown" and len([m for m in early.missing if "no end" in m]) == 1
    later = ledgers_of({"a": DAY + 9}, role)
    assert later.writers["z", 1].end == "outlived" and not any("no end" in m for m in later.missing)
    assert severity("unsent", None, None, later) == UNKNOWN, "it may have gone on without its ledger"


def test_all_brokers_must_have_been_pruned_that_far() -> None:
    late = 2 * DAY
    assert ledgers_of({"a": late, "b": 0}).writers["z", 1].end == "unknown", "b has records of that time"
    assert ledgers_of({"a": late, "b": 5}).writers["z", 1].end == "unknown"
    assert ledgers_of({"a": late, "b": late}).writers["z", 1].end == "outlived"
    gone = ledgers_of({"a": late, "b": 5}, ended="b")
    assert gone.writers["z", 1].end == "outlived", "no record of b is judged"


def test_without_pruning_no_client_is_outlived() -> None:
    """Brokers' ledgers that begin later without being pruned may have lost records of the client's time."""
    lives = [*life("z", "consumer", sealed=False), *life("p", "producer"), *life("a", "broker", view=1)]
    lives = [e | {"ts_us": 3 * DAY, "ts_last_us": 3 * DAY} if e["writer"] == "a" else e for e in lives]
    promote = event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=3 * DAY)
    ledgers = assemble([*lives, promote], let_go=True)
    assert ledgers.writers["z", 1].end == "unknown" and ledgers.broken


def test_a_gap_of_an_outlived_client_still_counts() -> None:
    lives = [*life("z", "producer", sealed=False), event("chain", "z", first=12, last=20)]
    lives += [*life("a", "broker", view=1), *life("p", "producer")]
    lives.append(event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=1))
    lives.append(event("pruned", "a", first=2, last=3, ts_us=2 * DAY))
    ledgers = assemble(lives, let_go=True)
    assert ledgers.writers["z", 1].end == "outlived"
    assert "the ledger of z (incarnation 1) lacks records 10..11" in ledgers.missing


def test_a_later_life_of_a_broker_shows_a_crash_of_the_earlier_one() -> None:
    ledgers = pair(*life("z", "broker", view=2, sealed=False), *life("z", "broker", incarnation=2, view=2))
    assert ledgers.missing == [] and ledgers.writers["z", 1].ended_by == "z started again"


def test_a_client_with_the_name_of_a_broker_excuses_nothing() -> None:
    ledgers = pair(*life("z", "broker", view=2, sealed=False), *life("z", "producer", incarnation=2))
    assert ledgers.writers["z", 1].end == "unknown" and ledgers.broken


def test_messages_a_killed_producer_did_not_record_are_unknown() -> None:
    """The message reached the broker, but the killed producer had not written its `sent`. A restart changes
    nothing."""
    whole, killed = pair(), pair(*life("z", "producer", sealed=False), *life("z", "producer", incarnation=2))
    assert severity("unsent", None, None, whole) == VIOLATION
    assert severity("unsent", None, None, killed) == UNKNOWN
    assert severity("lost", None, 2, killed) == VIOLATION, "what it recorded is known"


def test_a_gap_is_never_excused() -> None:
    ledgers = pair(event("chain", "a", first=12, last=20))
    assert ledgers.missing == ["the ledger of a (incarnation 1) lacks records 10..11"]
    assert ledgers.broken


def test_holes_have_writer_numbers_and_file() -> None:
    """A gap is located by `where`, a torn tail by the name of its file. Only a kill excuses a torn tail."""
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


def test_records_that_were_damaged_when_pruned_are_missing() -> None:
    pruned = event("pruned", "z", first=3, last=5, reason="damaged")
    lives = [e for e in life("z", "consumer", last=2) if e["kind"] != "seal"]
    ledgers = pair(*lives, pruned, event("chain", "z", first=5, last=9), event("seal", "z"))
    assert ledgers.missing == [
        "the ledger of z (incarnation 1) was damaged where it was pruned, so some of its pruned records"
        " are unknown"
    ]
    assert ledgers.broken


def test_owners_of_one_epoch_in_two_clusters_are_no_finding() -> None:
    other = [*life("x", "broker", view=1, cluster="two"), event("promote", "x", view=1, peer="", ts_us=1)]
    promote = event("promote", "a", view=1, peer="", ts_us=1)
    ledgers = assemble([*life("a", "broker", view=1, cluster="one"), promote, *other])
    assert ledgers.two_owners == [] and "ledgers of 2 clusters are mixed: one, two" in ledgers.missing


def test_processes_that_served_close_in_time_do_not_share_a_digit() -> None:
    lives = [e for n in range(20) for e in life("ab"[n % 2], "broker", incarnation=n, view=n + 1)]
    opened = [event("promote", "ab"[n % 2], n, view=n + 1, peer="", ts_us=n) for n in range(20)]
    given = digits(assemble([*lives, *opened]))
    order = [given["ab"[n % 2], n] for n in range(20)]
    assert all(len(set(order[n : n + 15])) == 15 for n in range(6))
    assert sum(order[:15]) == 0x0111_1111_1111_1111


def test_a_ledger_that_does_not_begin_with_record_0_has_a_gap() -> None:
    lives = [e for e in life("z", "consumer") if e["kind"] not in ("chain", "open")]
    assert "lacks records 0..3" in pair(*lives, event("chain", "z", first=4, last=9)).missing[0]


def test_record_numbers_used_twice_are_reported() -> None:
    ledgers = pair(event("chain", "c", first=3, last=5))
    why = "its count was lost, or records are here twice"
    assert ledgers.missing == [f"the ledger of c (incarnation 1) numbers records 3..5 twice: {why}"]
    assert severity("duplicate-illegal", None, 2, ledgers) == UNKNOWN
    assert severity("lost", None, 2, ledgers) == UNKNOWN, (
        "two lives share one name, and the last one is unknown"
    )


def test_a_torn_last_line_of_a_killed_writer_is_excused() -> None:
    ledgers = pair(event("malformed", "", 0, name="file:/x/a-1-0.ledger.jsonl", reason="not a JSON record"))
    assert ledgers.missing == [] and ledgers.writers["a", 1].torn == 1 and ledgers.unreadable == 1


def test_any_other_unreadable_line_is_reported() -> None:
    torn = [event("malformed", "", 0, name="file:/x/b-1-0.ledger.jsonl", reason="not a JSON record")] * 2
    ledgers = pair(*torn)
    assert (
        ledgers.missing == ["2 lines of b-1-0.ledger.jsonl cannot be read (not a JSON record)"]
        and ledgers.broken
    )


@pytest.mark.parametrize(
    "file", ["x.ledger.jsonl", "a.ledger.jsonl", "ab-1-0.ledger.jsonl", "a-2-0.ledger.jsonl"]
)
def test_a_killed_writer_does_not_excuse_another_writers_file(file: str) -> None:
    ledgers = pair(event("malformed", "", 0, name=f"file:/x/{file}", reason="not a JSON record"))
    assert ledgers.missing == [f"a line of {file} cannot be read (not a JSON record)"] and ledgers.broken


def test_an_invalid_whole_line_is_reported_and_never_excused() -> None:
    ledgers = pair(event("malformed", "a", 1, reason="fields missing, reversed or out of range"))
    why = "cannot be read (fields missing, reversed or out of range)"
    assert ledgers.missing == [f"a line of the ledger of a (incarnation 1) {why}"] and ledgers.broken


def test_a_torn_line_belongs_to_the_writer_with_an_encoded_name() -> None:
    torn = event("malformed", "", 0, name="file:/x/a%2520b-1-0.ledger.jsonl", reason="not a JSON record")
    ghost = event("promote", "b", view=3, peer="a b", reason="unforced", ts_us=6)
    ledgers = pair(torn, ghost, *life("a b", "broker", view=2, sealed=False))
    assert ledgers.missing == [] and ledgers.writers["a b", 1].torn == 1


def test_ledgers_of_two_clusters_are_reported() -> None:
    ledgers = pair(*life("y", "broker", view=2, cluster="one"), *life("z", "broker", view=2, cluster="two"))
    assert ledgers.missing == ["ledgers of 2 clusters are mixed: one, two"]


def test_a_broker_that_other_ledgers_mention_must_be_here() -> None:
    included = event("insync", "b", view=2, wseq=7, peer="ghost", reason="included", name="b,ghost", n=5)
    assert pair(included).missing == ["the ledgers mention broker ghost, whose ledger is not here"]


def test_traffic_in_an_unopened_epoch_shows_a_missing_primary() -> None:
    """The dead primary came back under the same name; only the ledger of its first life is missing."""
    copied = event("span", "b", view=1, name="backup_enqueue", ts_us=1, ts_last_us=2, n=1)
    promote = event("promote", "b", view=2, peer="a", reason="unforced", ts_us=5)
    lives = life("a", "broker", incarnation=2, view=2) + life("b", "broker", view=2)
    ledgers = assemble([*lives, *life("p", "producer"), promote, copied])
    assert ledgers.missing == ["no ledger here opened epoch 1, so the ledger of its primary is missing"]
    assert ledgers.broken and pair(copied).missing == []


def test_the_missing_later_ledger_of_a_rejoined_broker_is_reported() -> None:
    included = event("insync", "b", view=2, wseq=7, peer="a", reason="included", name="a,b", n=5)
    ledgers = pair(included)
    lacks = "the ledgers say that a was in sync in epoch 2, but its ledger of that time is not here"
    assert ledgers.missing == [lacks] and ledgers.broken
    assert pair(included, *life("a", "broker", incarnation=2, view=2)).missing == []


def test_another_schema_version_is_reported() -> None:
    assert "schema version 2" in pair(event("version", "", 0, name="2", n=5)).missing[0]


def test_two_owners_of_one_epoch_are_found() -> None:
    assert pair(event("promote", "a", view=2, peer="", reason="unforced", ts_us=6)).two_owners == [2]


def test_without_producers_the_confirmed_messages_are_unknown() -> None:
    ledgers = assemble([*life("a", "broker", view=1), event("promote", "a", view=1, peer="", ts_us=1)])
    assert ledgers.missing == ["there is no ledger of a producer, so the confirmed messages are unknown"]


def test_absence_is_a_violation_only_in_whole_ledgers() -> None:
    whole, broken = pair(), pair(event("chain", "a", first=12, last=20))
    assert severity("lost", None, 1, whole) == VIOLATION
    assert severity("lost", None, 1, broken) == UNKNOWN
    assert severity("duplicate-illegal", None, 1, broken) == VIOLATION
    assert severity("duplicate-redelivered", None, 1, broken) == ALLOWED


def test_deliveries_beyond_the_end_of_a_killed_primary_are_unknown() -> None:
    assert severity("never-published", "beyond", 1, pair()) == UNKNOWN
    assert severity("never-published", "beyond", 2, pair()) == VIOLATION
    assert severity("never-published", None, 1, pair()) == VIOLATION


def test_absence_is_unknown_without_a_clean_end_of_the_last_owner() -> None:
    lives = life("a", "broker", view=1, sealed=False) + life("p", "producer")
    ledgers = assemble([*lives, event("promote", "a", view=1, peer="", reason="bootstrap", ts_us=1)])
    assert not ledgers.inventory().complete
    ledgers.broken = False
    assert severity("lost", None, 1, ledgers) == UNKNOWN
