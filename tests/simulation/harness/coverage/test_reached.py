"""The ledger of coverage: what it counts, and that what is missing, or excused in vain, has a name."""

from __future__ import annotations

import json
from collections import Counter
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

from broker.model.values import ORIGIN
from ha.core import codes
from ha.core.election import manual
from ha.core.membership import Membership, Status
from ha.core.primary import primary
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record.authority import FORCED
from ha.core.record.in_sync_record import Incarnation
from ha.core.wire import hello
from ha.core.wire.link import Frame
from tests.simulation.faults.plan import Fault
from tests.simulation.harness.coverage import reached, watching
from tests.simulation.harness.coverage.sentences import UNKNOWN, arguments_of, returns_of
from tests.simulation.harness.plan import draw_plan
from tests.simulation.harness.world import World

SEED = 3


def everything() -> watching.Ledger:
    return Counter(dict.fromkeys(reached.built() - reached.UNREACHABLE.keys(), 1))


def test_a_run_fills_the_ledger_and_is_the_same_run() -> None:
    with watching.watching():
        ledger = watching.begin()
        world = World(draw_plan(SEED))
        world.run()
        reached.complete(ledger, world)
    plain = World(draw_plan(SEED))
    plain.run()
    assert world.clock.trace_hash() == plain.clock.trace_hash()
    assert ledger[watching.GRANTED, "bootstrap"] == 1
    assert ledger[watching.STATUS, "joining -> recovering"] >= 1
    assert ledger[watching.PHASE, "committed -> in-sync"] >= 1
    assert ledger[watching.FRAMES_HEARD[Frame.BATCH]] > 0
    assert ledger[watching.FRAMES_SENT[Frame.BATCH]] >= ledger[watching.FRAMES_HEARD[Frame.BATCH]]
    faults = [many for (theme, _), many in ledger.items() if theme == reached.FAULT]
    assert sum(faults) == len(world.faults.injected)


def test_nothing_is_left_of_the_watching() -> None:
    before = {name: vars(owner).get(name) for owner, name, _ in watching.WRAPPERS}
    with watching.watching():
        assert "phase" in vars(RemoteBackup)
    assert {name: vars(owner).get(name) for owner, name, _ in watching.WRAPPERS} == before
    assert "phase" not in vars(RemoteBackup)


def test_steps_are_counted_and_repetitions_are_not() -> None:
    with watching.watching():
        ledger = watching.begin()
        backup = RemoteBackup(Incarnation("n", 1), "b", 7, 0.0)
        backup.admitted(0.0)
        backup.begins(ORIGIN, iter(()), 0.0)
        backup.phase = Phase.CATCHING
        membership = Membership(Status.JOINING)
        membership.become(Status.CATCH_UP)
        membership.become(Status.CATCH_UP)
        assert backup.phase is Phase.CATCHING
    assert ledger == {
        (watching.PHASE, "begins as asked"): 1,
        (watching.PHASE, "asked -> waiting"): 1,
        (watching.PHASE, "waiting -> catching"): 1,
        (watching.STATUS, "joining -> catch-up"): 1,
    }


def test_all_that_is_built_was_reached() -> None:
    assert reached.faults_of(everything(), reached.MANY) == []


@pytest.mark.parametrize(
    "entry",
    [
        (watching.STATUS, "active -> joining"),
        (watching.PHASE, "in-sync -> lost"),
        (watching.FRAMES_HEARD[Frame.CHECKPOINT]),
        (watching.GIVEN_UP, "it has linked again"),
        (reached.FAULT, Fault.CUT_LINK.value),
    ],
)
def test_a_built_thing_that_no_seed_reached_is_named(entry: watching.Entry) -> None:
    ledger = everything()
    del ledger[entry]
    assert reached.faults_of(ledger, 1) == [f"never reached: {entry[0]}: {entry[1]}"]


def test_what_is_rare_is_demanded_of_long_runs_only() -> None:
    entry = watching.phase_step(Phase.GUARDED, Phase.CATCHING)
    ledger = everything()
    del ledger[entry]
    assert reached.faults_of(ledger, reached.MANY - 1) == []
    assert reached.faults_of(ledger, reached.MANY) == [f"never reached: {entry[0]}: {entry[1]}"]


def test_an_excuse_that_a_seed_disproves_is_a_fault() -> None:
    ledger = everything()
    ledger[watching.RECORD, "QueueEnds"] += 1
    (sentence,) = reached.faults_of(ledger, 1)
    assert sentence.startswith("reached, though listed as out of reach")
    assert sentence.endswith(": QueueEnds")


def test_a_step_that_no_table_has_is_a_fault() -> None:
    ledger = everything()
    ledger[watching.phase_step(Phase.LOST, Phase.IN_SYNC)] += 1
    assert reached.faults_of(ledger, 1) == [
        "reached, but no table has it: phase of a backup: lost -> in-sync"
    ]


def test_the_table_says_what_was_reached_and_what_was_not() -> None:
    ledger: watching.Ledger = Counter({(watching.STATUS, "active -> joining"): 1204})
    text = "\n".join(reached.lines(ledger))
    assert "status of a node: 1 of " in text
    assert "1,204  active -> joining" in text
    assert "-  joining -> catch-up" in text
    assert "-  QueueEnds  (out of reach: " in text


def test_the_file_holds_both(tmp_path: Path) -> None:
    ledger: watching.Ledger = Counter({(watching.STATUS, "active -> joining"): 12})
    reached.save(ledger, tmp_path / "coverage.json", first=1, seeds=5)
    found = json.loads((tmp_path / "coverage.json").read_text())
    assert found["reached"] == {watching.STATUS: {"active -> joining": 12}}
    assert "joining -> catch-up" in found["not reached"][watching.STATUS]
    assert (found["first"], found["seeds"]) == (1, 5)


@pytest.mark.parametrize(("owner", "name", "wrap"), watching.WRAPPERS)
def test_each_wrapper_takes_what_it_wraps_takes(owner: type, name: str, wrap: Any) -> None:
    """It is installed for `--coverage` only, and types do not tell."""
    original = getattr(owner, name)
    there, taken = (signature(each).parameters.values() for each in (original, wrap(original)))
    if not any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in taken):
        assert [parameter.name for parameter in taken] == [parameter.name for parameter in there]


# -- sentences


def test_sentences_are_read_from_the_source() -> None:
    refusals = arguments_of([manual], frozenset({"_no"}), 0)
    assert "promote-other-serves" in refusals.texts
    said = codes.PROMOTE_OTHER_SERVES.say(primary="b", epoch=65537)
    assert refusals.kind_of(said.sentence) == said.code
    assert refusals.kind_of("b is tired") == UNKNOWN
    losses = arguments_of([primary], frozenset({"_lose"}), 1)
    assert {"it has started again", "it has linked again", "its link broke"} <= set(losses.texts)
    assert "join-not-primary" in returns_of(hello, "refusal").texts
    assert set(watching.GRANTS.texts) >= {"unforced", "bootstrap", "cold", FORCED}
