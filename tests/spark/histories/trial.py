"""One trial: a history from a seed, planted faults, and three lists that must be equal.

The lists are the planted faults, the findings of the Spark job, and those of the oracle. The seed alone
identifies a trial: `python -m tests.spark.histories --first SEED --histories 1` repeats it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.histories import oracle, plant, plant_roles, pruning
from tests.spark.histories.generate import History, Plan
from tests.spark.histories.oracle import Named
from tests.spark.histories.spoiler import Spoiler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fault = Callable[[Spoiler], bool]
FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        plant.lost, plant.unplaced, plant.duplicate_illegal, plant.resent_confirmed, plant.reordered,
        plant.reordered_enqueue, plant.enqueued_twice, plant.early_copy, plant.early_before_exclusion,
        plant.early_own_disk,
        plant.early_backup_disk, plant.own_disk_not_waited_for, plant.backup_disk_not_waited_for,
        plant.copy_differs, plant.never_published, plant.unsent, plant.unaccounted,
        plant_roles.number_doubled,
        plant_roles.acked_returned, plant_roles.dequeued_twice, plant_roles.unexplained,
        plant_roles.two_primaries, plant_roles.overlap, plant_roles.enqueued_by_two,
        plant_roles.quarantined_though_served, plant_roles.quarantine_missing, plant_roles.torn,
        plant_roles.gap, plant_roles.endless, plant_roles.torn_tail,
    )
}  # fmt: skip
RARE = frozenset({"gap", "endless"})
"""Faults that turn findings of absence into unknown: most histories have none."""
OF_LEDGERS = frozenset({"gap", "torn-tail"})
"""Findings about records, not messages; compared separately."""


@dataclass
class Trial:
    seed: int
    plan: Plan
    planted: list[str]
    expected: set[Named]
    gaps: set[tuple[str, int, int, int]]
    endless: set[tuple[str, int]]
    torn: int
    differences: list[str] = field(default_factory=list)

    @property
    def again(self) -> str:
        faults = ",".join(self.planted) or "none"
        return (
            f"python -m tests.spark.histories --first {self.seed} --histories 1"
            f" --messages {self.plan.messages} --faults {faults}"
        )

    def __str__(self) -> str:
        told = f"seed {self.seed}: {self.plan}\nplanted: {', '.join(self.planted) or 'nothing'}\n"
        return told + "\n".join(self.differences) + f"\nagain: {self.again}"


def draw_faults(seed: int) -> list[str]:
    """Names of faults: none in every sixth history, otherwise a mix, and in every fifth all common ones."""
    rng = random.Random(seed ^ 0xFA17)
    kind = rng.random()
    if kind < 1 / 6:
        return []
    common = [name for name in FAULTS if name not in RARE]
    chosen = rng.sample(common, len(common) if kind > 0.8 else rng.randint(1, 9))
    return chosen + [name for name in sorted(RARE, reverse=True) if rng.random() < 0.15]


def make(seed: int, folder: Path, messages: int | None = None, faults: Sequence[str] | None = None) -> Trial:
    """Write the ledgers of this seed into `folder`."""
    plan = Plan.draw(seed)
    plan = replace(plan, messages=messages) if messages else plan
    spoiler = Spoiler(History(plan), seed)
    wanted = draw_faults(seed) if faults is None else faults
    planted = [name for name in wanted if FAULTS[name](spoiler)]
    ledgers = spoiler.ledgers
    gaps = set()
    for process, record in spoiler.gaps:
        wseq = spoiler.index(process, record)
        ledgers.dropped[process].add(wseq)
        gaps.add((*process, wseq, wseq))
    ledgers.write(folder, random.Random(seed))
    return Trial(seed, plan, planted, spoiler.expected(), gaps, set(spoiler.endless), len(ledgers.torn))


def told(answer: dict[str, Any]) -> dict[str, set[Named]]:
    """The job's findings about messages, by severity."""
    out: dict[str, set[Named]] = {"violation": set(), "unknown": set(), "allowed": set()}
    for f in answer["findings"]:
        if f["kind"] not in OF_LEDGERS:
            ranges = tuple((first, last) for first, last in f["ranges"])
            out[f["severity"]].add((f["kind"], f["queue"], f["epoch"], f["prod"], f["note"], ranges))
    return out


def compare(trial: Trial, folder: Path, answer: dict[str, Any] | None) -> Trial:
    """Fill in `differences`; none is a success. Without `answer`, only the plan and the oracle
    are compared."""
    judged = oracle.judge(folder)
    say = trial.differences.append
    found = judged.findings["violation"] | judged.findings["unknown"]
    _differ(say, "planted", trial.expected, "oracle", found)
    if (trial.gaps, trial.torn) != (judged.gaps, judged.torn):
        say(f"planted gaps {trial.gaps}, {trial.torn} torn lines; the oracle: {judged.gaps}, {judged.torn}")
    if trial.endless != judged.endless:
        say(f"planted without an end {trial.endless}; the oracle: {judged.endless}")
    due = "not provable" if trial.gaps or trial.endless else "proven"
    if not trial.expected and judged.verdict != due:
        say(f"no message was spoiled: expected {due}, but the oracle says {judged.verdict}")
    if answer is None:
        return trial
    spark = told(answer)
    _differ(say, "planted", trial.expected, "Spark", spark["violation"] | spark["unknown"])
    for severity, named in judged.findings.items():
        _differ(say, f"oracle ({severity})", named, f"Spark ({severity})", spark[severity])
    holes = {(w["writer"], w["incarnation"], *gap) for w in answer["writers"] for gap in w["gaps"]}
    if (holes, answer["files"]["unreadable_lines"]) != (trial.gaps, trial.torn):
        say(f"planted gaps {trial.gaps} and {trial.torn} torn lines, Spark sees {holes}, "
            f"{answer['files']['unreadable_lines']}")  # fmt: skip
    endless = {(w["writer"], w["incarnation"]) for w in answer["writers"] if w["end"] == "unknown"}
    if endless != trial.endless:
        say(f"planted without an end {trial.endless}, Spark sees {endless}")
    numbered = {(f["prod"], *map(tuple, f["ranges"])) for f in answer["findings"] if f["kind"] == "gap"}
    if numbered != {(f"{writer}#{incarnation}", (a, b)) for writer, incarnation, a, b in trial.gaps}:
        say(f"planted gaps {trial.gaps}, but Spark's findings have {numbered}")
    if answer["verdict"] != judged.verdict:
        say(f"Spark says {answer['verdict']} ({answer['missing'][:2]}), the oracle {judged.verdict}")
    return trial


def _differ(say: Callable[[str], None], left: str, mine: set[Named], right: str, yours: set[Named]) -> None:
    for owner, only in ((left, mine - yours), (right, yours - mine)):
        for named in sorted(only, key=str):
            say(f"  only {owner}, of {left} and {right}: {named}")


def run(
    session: SparkSession | None, seed: int, folder: Path, messages: int | None = None,
    faults: Sequence[str] | None = None, *, pruned: bool = False,
) -> Trial:  # fmt: skip
    """Run the whole trial of a seed in a folder of its own.

    `pruned`: at the end, also prune the ledgers and reconcile what remains.
    """
    trial = make(seed, folder, messages, faults)
    answer = None
    if session is not None:
        from spark.reconcile.input.read import find_ledgers
        from spark.reconcile.job import reconcile

        answer = reconcile(session, find_ledgers([folder]))
    compare(trial, folder, answer)
    if pruned and session is not None and not trial.gaps and not trial.endless:
        trial.differences += pruning.differences(trial.expected, session, folder, seed)
    return trial
