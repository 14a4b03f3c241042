"""The ledger of coverage: what the seeds have reached of what is built, and what is built.

What there is to reach is read from the product's own tables and sentences, not listed here: a status, a
link method or a refusal that is added to the core must be reached by some seed from then on. `faults_of` is
the test; `UNREACHABLE` are its only excuses, and an excuse that a seed disproves is a fault as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from broker.amqp091.server.channel import _HANDLERS
from broker.amqp091.server.definitions import DEFINITION_METHODS
from broker.model.values import Reason
from ha.core.election import switchover
from ha.core.election.attempt import PromotionStep
from ha.core.membership import TRANSITIONS
from ha.core.primary.remote_backup import PHASES, Phase
from ha.core.record.record_keeper import Outcome
from ha.core.wire.link import Method
from tests.simulation.faults.plan import Fault
from tests.simulation.harness.coverage import watching
from tests.simulation.harness.coverage.watching import Entry, Ledger

if TYPE_CHECKING:
    from tests.simulation.harness.world import World

FAULT, PAIR = "fault", "faults in turn"
SHOWN_PAIRS = 10

NO_STRANGERS = "every node is of one cluster and version, and has a number and a name of its own"
NO_CLIENT = "no client of the workload does"
NEVER_ALONE = "every node is one of a cluster from its first start on"
NEVER_LOST = "the register loses nothing that it has"
SOUND_CIBS = "a virtual CIB has all nodes, nobody tampers with the record in it, and no node leaves by itself"

UNREACHABLE: Mapping[Entry, str] = {
    (watching.RECORD, "QueueEnds"): "definitions and the store tell it, no batch does",
    watching.SENT[Method.MANAGE]: "operators send it, no node does",
    watching.HEARD[Method.MANAGE_OK]: "operators hear it, no node does",
    watching.register_answer(True, Outcome.CONFLICT): "a register refuses swaps; a read it answers or not",
    watching.register_answer(True, Outcome.NOT_YET): "a read writes nothing that could be put off",
    (watching.GIVEN_UP, "it cannot keep up"): "no joiner falls 256 MiB behind",
    **dict.fromkeys(
        [
            (watching.JOIN_REFUSED, "join-same-name"),
            (watching.JOIN_REFUSED, "join-same-number"),
            (
                watching.JOIN_REFUSED,
                "join-foreign-cluster",
            ),
            (watching.JOIN_REFUSED, "join-link-version"),
            (
                watching.JOIN_REFUSED,
                "join-foreign-history",
            ),
            (watching.JOIN_REFUSED, "join-own-identity"),
            (watching.JOIN_REFUSED, "join-identity-copied"),
            (watching.REFUSED, "promote-same-number"),
            (watching.REFUSED, "promote-foreign-record"),
        ],
        NO_STRANGERS,
    ),
    **dict.fromkeys(
        [
            (watching.REFUSED, "demote-standalone"),
            (watching.REFUSED, "switchover-standalone"),
            (watching.REFUSED, "promote-other-holds-data"),
        ],
        NEVER_ALONE,
    ),
    **dict.fromkeys(
        [
            (watching.REFUSED, "promote-record-gone"),
            (watching.REFUSED, "the authority has lost the record, and this node's lease is over"),
            (watching.STEPPED_DOWN, "the authority has lost the record, and this node's lease is over"),
        ],
        NEVER_LOST,
    ),
    (
        watching.REFUSED,
        "promote-record-lost",
    ): "nobody takes a file away from a node",
    **{
        (watching.OPERATION, name): NO_CLIENT
        for name in (
            "basic.cancel-ok", "basic.recover", "basic.recover-async", "channel.close", "channel.close-ok",
            "channel.flow", "channel.flow-ok",
        )
    },
    **dict.fromkeys(
        [
            (watching.CIB, "pacemaker-node-unknown"),
            (watching.CIB, "pacemaker-node-alone"),
            (watching.CIB, "pacemaker-leaving"),
            (watching.CIB, "pacemaker-record-damaged"),
        ],
        SOUND_CIBS,
    ),
    (watching.REFUSED, "no-controller"): "nobody asks a controller there",
    (watching.REFUSED, "promote-not-listed"): "each node is in its own list",
    (watching.REFUSED, "promote-excluded"): "its own copy does not name it any more",
}  # fmt: skip
"""What no seed can reach, each with the reason. Keep it short: the simulation says nothing of these."""

A_NEW_DISK = (
    "a node comes back on a new disk while the link that it had on the old one is still thought to be"
)
A_JOINER_ENDS = "a joiner is lost, or stalls, in the milliseconds in which it catches up or is included"
TWO_AT_ONCE = "somebody else acts in the short time in which a promotion waits"
A_HANDOVER_FAILS = "something happens in the milliseconds that a switchover takes"
A_CIB_MOVES = "a copy of the CIB changes, or a command fails, in the milliseconds between two commands"
IN_HASTE = "an operator asks, or a node speaks, in a state that lasts for milliseconds"

RARE: Mapping[Entry, str] = {
    (watching.REFUSED, "promote-lease-expired"): (
        "somebody asks to promote a primary within the moments in which it cannot prove that it is one"
    ),
    **{
        watching.phase_step(before, after): A_JOINER_ENDS
        for before in (Phase.WAITING, Phase.CATCHING, Phase.GUARDED, Phase.INCLUDING)
        for after in (Phase.LOST, Phase.LEAVING)
    },
    (watching.JOIN_REFUSED, "join-backup-same-name"): A_NEW_DISK,
    (watching.JOIN_REFUSED, "join-backup-same-number"): A_NEW_DISK,
    watching.phase_step(Phase.GUARDED, Phase.CATCHING): A_JOINER_ENDS,
    watching.phase_step(Phase.COMMITTED, Phase.LOST): A_JOINER_ENDS,
    watching.phase_step(Phase.COMMITTED, Phase.LEAVING): A_JOINER_ENDS,
    **dict.fromkeys(
        [
            (watching.REFUSED, "promote-record-newer"),
            (watching.REFUSED, "an operator forces it"),
            (watching.REFUSED, "being promoted; waits until the lease of … has run out"),
            (watching.REFUSED, "the authority has epoch … of …"),
            (watching.REFUSED, "promote-undecided"),
            (watching.REFUSED, "promote-authority-silent"),
            (watching.REFUSED, "promote-authority-fails"),
            (watching.REFUSED, "switchover-authority-away"),
            (
                watching.REFUSED,
                "promote-register-behind",
            ),
        ],
        TWO_AT_ONCE,
    ),
    **dict.fromkeys(
        [
            (watching.REFUSED, "promote-copy-incomplete"),
            (
                watching.REFUSED,
                "promote-queues-deleted",
            ),
            (watching.REFUSED, "promote-successor-unknown"),
            (watching.REFUSED, "… was asked to take this node in again, and may have excluded it for that"),
            (watching.REFUSED, "no link to … in epoch … has ended here: it may serve without this node"),
            (watching.STEPPED_DOWN, "a backup knows of epoch …"),
            (watching.JOIN_REFUSED, "join-not-primary"),
        ],
        IN_HASTE,
    ),
    **dict.fromkeys(
        [
            (watching.REFUSED, "switchover-lease-expired"),
            (watching.REFUSED, "switchover-nobody-serves"),
            (watching.REFUSED, "switchover-returned"),
            (watching.REFUSED, "switchover-other-promoted"),
            (watching.HINDERED, "a change of the record was not committed …"),
            (watching.HINDERED, "clients were not all answered …: …"),
            (watching.HINDERED, "it did not acknowledge everything …"),
            (watching.HINDERED, "it has everything, but did not answer …"),
            (watching.HINDERED, "the disk of … did not take everything …"),
            (watching.HANDED_OVER, "handed over, then not done"),
            (watching.HANDED_OVER, "returning, then not done"),
            (watching.HANDED_OVER, "returning, then done"),
        ],
        A_HANDOVER_FAILS,
    ),
    **dict.fromkeys(
        [
            (watching.CIB, "pacemaker-write-undone"),
            (watching.CIB, "pacemaker-write-unsure"),
            (watching.CIB, "pacemaker-admin-epoch-stuck"),
            (watching.CIB, "pacemaker-record-differs"),
            (watching.CIB, "pacemaker-admin-epoch-differs"),
            (watching.CIB, "pacemaker-votes-unknown"),
            (watching.CIB, "pacemaker-partitions-differ"),
        ],
        A_CIB_MOVES,
    ),
}
"""Reached once in a thousand seeds or more. `--check-coverage` demands it of runs of `MANY` only; with
fewer it would be a lottery, since any change of the product, or of how plans are drawn, gives other runs."""
MANY = 20_000


def built() -> set[Entry]:
    """Everything that there is to reach."""
    found: set[Entry] = set()
    for before, targets in TRANSITIONS.items():
        found |= {(watching.STATUS, f"{before.value} -> {after.value}") for after in targets}
    found |= _phases()
    found |= {*watching.EFFECTS.values(), *watching.RECORDS.values()}
    found |= {*watching.FRAMES_SENT.values(), *watching.FRAMES_HEARD.values()}
    found |= {*watching.SENT.values(), *watching.HEARD.values()}
    found |= {(watching.ENDED, reason.ledger_name) for reason in Reason}
    for theme, sentences in watching.SENTENCES.items():
        found |= {(theme, text) for text in sentences.texts}
    found |= {(watching.CIB, name) for name in watching.CIB_CODES}
    operations = ("basic.publish", *_HANDLERS, *DEFINITION_METHODS)
    found |= {(watching.OPERATION, name) for name in operations}
    found |= {(watching.STEP, step.value) for step in PromotionStep}
    found |= {watching.register_answer(read, outcome) for read in (True, False) for outcome in Outcome}
    found |= {(watching.LOSS, watching.EXCLUDED), (watching.LOSS, watching.UNCOUNTED)}
    found |= {(watching.HANDED_OVER, f"{step.value}, then not done") for step in switchover.SwitchoverStep}
    ends_well = (switchover.SwitchoverStep.HANDED, switchover.SwitchoverStep.RETURNING)
    found |= {(watching.HANDED_OVER, f"{step.value}, then done") for step in ends_well}
    found |= {(FAULT, fault.value) for fault in Fault}
    return found


def _phases() -> set[Entry]:
    steps = set()
    for before, targets in PHASES.items():
        for after in targets:
            steps.add(watching.phase_step(before, after))
    return steps | {watching.phase_step(None, first) for first in (Phase.EXPECTED, Phase.ASKED)}


def complete(ledger: Ledger, world: World) -> None:
    """Add what is known once a run is over: its faults, and what the clients did."""
    faults = [fault.value for fault in world.faults.injected]
    for fault in faults:
        ledger[FAULT, fault] += 1
    for one, other in pairwise(faults):
        ledger[PAIR, f"{one}, then {other}"] += 1


def pairs() -> set[Entry]:
    """Every fault followed by every fault: reported, and none of them demanded."""
    return {(PAIR, f"{one.value}, then {other.value}") for one in Fault for other in Fault}


def faults_of(ledger: Ledger, seeds: int) -> list[str]:
    """What is wrong with the coverage of so many seeds: one sentence each. Empty when every built thing was
    reached, but for what is excused."""
    there = built()
    excused = UNREACHABLE.keys() | (RARE.keys() if seeds < MANY else set())
    wrong = [
        f"never reached: {theme}: {what}"
        for theme, what in sorted(there - excused)
        if not ledger[theme, what]
    ]
    wrong += [
        f"reached, though listed as out of reach ({reason}): {theme}: {what}"
        for (theme, what), reason in sorted(UNREACHABLE.items())
        if ledger[theme, what]
    ]
    wrong += [
        f"listed as out of reach or rare, but there is no such thing: {theme}: {what}"
        for theme, what in sorted((UNREACHABLE.keys() | RARE.keys()) - there)
    ]
    wrong += [
        f"reached, but no table has it: {theme}: {what}"
        for theme, what in sorted(ledger.keys() - there - pairs())
        if ledger[theme, what]
    ]
    return wrong


# -- for readers


def lines(ledger: Ledger) -> list[str]:
    """A table: each theme with what was reached in it and how often; then what was not."""
    there = built() | pairs()
    out: list[str] = []
    for theme in sorted({theme for theme, _ in there | ledger.keys()}):
        reached = {what: many for (of, what), many in ledger.items() if of == theme and many}
        missing = sorted(what for of, what in there if of == theme and what not in reached)
        of_built = sum(1 for of, what in there if of == theme and what in reached)
        out.append(f"{theme}: {of_built} of {of_built + len(missing)}")
        if theme != PAIR:
            out += [f"  {many:>11,}  {what}" for what, many in sorted(reached.items())]
        shown = missing if theme != PAIR else missing[:SHOWN_PAIRS]
        out += [f"            -  {what}{_excuse(theme, what)}" for what in shown]
        if len(shown) < len(missing):
            out.append(f"            -  and {len(missing) - len(shown)} more, all in the file of --coverage")
    return out


def _excuse(theme: str, what: str) -> str:
    if (theme, what) in RARE:
        return f"  (rare: {RARE[theme, what]})"
    reason = UNREACHABLE.get((theme, what))
    return f"  (out of reach: {reason})" if reason else ""


def save(ledger: Ledger, path: Path, *, first: int, seeds: int) -> None:
    """As JSON: by theme, what was reached and how often; what is built and was not."""
    reached: dict[str, dict[str, int]] = {}
    missing: dict[str, list[str]] = {}
    for (theme, what), many in sorted(ledger.items()):
        reached.setdefault(theme, {})[what] = many
    for theme, what in sorted((built() | pairs()) - {e for e, many in ledger.items() if many}):
        missing.setdefault(theme, []).append(what)
    document = {"first": first, "seeds": seeds, "reached": reached, "not reached": missing}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
