"""The decision table: from the action and the state to a return code, a score and a sentence.

Pure, and the only place where codes and scores of start, stop, monitor, promote and demote are decided. A
decision without a code says that there is work to do first; the actions do it, look again, and ask again.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from resource_agent.codes import Code, Score


class Asked(enum.Enum):
    START = "start"
    STOP = "stop"
    MONITOR = "monitor"
    PROBE = "probe"
    """A monitor that is not repeated: the manager wants to know what there is."""
    PROMOTE = "promote"
    DEMOTE = "demote"


class Process(enum.Enum):
    """The broker's process, as the kernel has it."""

    ABSENT = "absent"
    FROZEN = "frozen"
    """Stopped by a signal."""
    DOOMED = "doomed"
    """SIGKILL is pending: nothing of it runs any more, but the kernel waits for a disk, and keeps its
    sockets.
    """
    ALIVE = "alive"


class State(enum.Enum):
    """The state that a live broker reports over its control socket, or that its silence shows."""

    STARTING = "starting"
    """It has not answered yet, and still may take its time: it reads its store."""
    SILENT = "silent"
    """No answer in time, or none that makes sense."""
    STALLED = "stalled"
    """A write in its data directory does not end, or is refused."""
    STANDALONE = "standalone"
    """It serves, and is no member of a pair."""
    ACTIVE = "active"
    ALONE = "alone"
    """It serves, and nobody is in sync with it."""
    RENEWING = "renewing"
    """Primary, but its lease has just expired; the authority answers."""
    LEASE_EXPIRED = "lease expired"
    """Primary, its lease has expired, and the authority is of no help."""
    READY = "ready"
    """In the record, by this process."""
    DOUBTFUL = "doubtful"
    """In the record, and follows a primary, but its own authority is of no help."""
    FORMER_OWNER = "former owner"
    """The best copy after all were down, and the last primary's."""
    BEST_COPY = "best copy"
    PROMOTING = "promoting"
    """It was asked to be primary, and that is not decided yet, or waits for the lease of the old one."""
    BEHIND = "behind"
    """Not promotable."""
    TROUBLED = "troubled"
    """Not promotable, and something is wrong with it or with its authority."""

    @property
    def serves(self) -> bool:
        return self in _SERVING


_SERVING = (State.STANDALONE, State.ACTIVE, State.ALONE, State.RENEWING, State.LEASE_EXPIRED)


class Facts(NamedTuple):
    """All that a decision depends on."""

    installed: bool
    """The program is there."""
    process: Process
    state: State
    """Of a process that is alive; of others it means nothing."""
    promoted: bool
    """It served when it was last heard."""
    target: bool
    """The manager is about to promote it, and the old primary may have handed over already."""
    leaving: bool
    """The manager is about to demote it, and it has stepped down already."""


class Decision(NamedTuple):
    code: Code | None
    """None: there is work to do."""
    score: Score
    sentence: str


_ANSWERS: dict[State, Decision] = {
    State.STARTING: Decision(Code.SUCCESS, Score.NONE, "it starts, and does not answer yet"),
    State.STANDALONE: Decision(Code.ARGS, Score.NEVER, "its configuration has no ha.brokers: it is no pair"),
    State.ACTIVE: Decision(Code.RUNNING_PROMOTED, Score.SERVING, "it serves"),
    State.ALONE: Decision(Code.DEGRADED_PROMOTED, Score.SERVING, "it serves without a backup in sync"),
    State.RENEWING: Decision(Code.DEGRADED_PROMOTED, Score.KEEP, "it proves anew that it is the primary"),
    State.LEASE_EXPIRED: Decision(
        Code.DEGRADED_PROMOTED, Score.LEASE_EXPIRED, "it cannot prove to be the primary"
    ),
    State.READY: Decision(Code.SUCCESS, Score.IN_RECORD, "it is in the in-sync set"),
    State.DOUBTFUL: Decision(Code.SUCCESS, Score.DOUBTFUL, "it is in the in-sync set; the cluster is silent"),
    State.FORMER_OWNER: Decision(Code.SUCCESS, Score.FORMER_OWNER, "it has the best copy, and was primary"),
    State.BEST_COPY: Decision(Code.SUCCESS, Score.BEST_COPY, "it has the best copy"),
    State.PROMOTING: Decision(Code.SUCCESS, Score.KEEP, "it is being promoted"),
    State.BEHIND: Decision(Code.SUCCESS, Score.NEVER, "it may not be promoted"),
    State.TROUBLED: Decision(Code.DEGRADED, Score.NEVER, "it may not be promoted, and is in trouble"),
}  # fmt: skip
_FAULTS: dict[State, str] = {
    State.SILENT: "it does not answer",
    State.STALLED: "its disk does not answer",
}
_LIFELESS: dict[Process, str] = {
    Process.FROZEN: "its process is stopped by a signal",
    Process.DOOMED: "its process was killed, and does not end: it waits in the kernel, perhaps for a disk",
}
_WORK = Decision(None, Score.KEEP, "")


def decide(asked: Asked, facts: Facts) -> Decision:
    """The row of the table."""
    if asked is Asked.STOP:
        return _stop(facts)
    if asked is Asked.START:
        return _start(facts)
    if asked is Asked.PROMOTE:
        return _promote(facts)
    if asked is Asked.DEMOTE:
        return _demote(facts)
    return _monitor(asked, facts)


def _monitor(asked: Asked, facts: Facts) -> Decision:
    if facts.process is Process.ABSENT:
        if facts.installed or asked is Asked.PROBE:
            return Decision(Code.NOT_RUNNING, Score.NONE, "it does not run")
        return Decision(Code.INSTALLED, Score.NONE, "it does not run, and its program is missing")
    fault = _LIFELESS.get(facts.process) or _FAULTS.get(facts.state)
    if fault is not None:
        return Decision(Code.FAILED_PROMOTED if facts.promoted else Code.GENERIC, Score.NEVER, fault)
    found = _ANSWERS[facts.state]
    return found if asked is Asked.PROBE or facts.state is State.STANDALONE else _expected(facts, found)


def _expected(facts: Facts, found: Decision) -> Decision:
    """Between two steps of a planned change the broker may be a step ahead. That is no failure."""
    if facts.target and facts.state.serves:
        return Decision(Code.SUCCESS, found.score, "it has taken over already, and is about to be promoted")
    if facts.leaving and not facts.state.serves and facts.state is not State.STARTING:
        return Decision(
            Code.RUNNING_PROMOTED, found.score, "it has stepped down already, and is about to be demoted"
        )
    return found


def _start(facts: Facts) -> Decision:
    if facts.process is Process.ABSENT:
        if not facts.installed:
            return Decision(Code.INSTALLED, Score.NONE, "its program is missing")
        return _WORK
    found = _monitor(Asked.MONITOR, facts)
    if facts.process in _LIFELESS or facts.state in (*_FAULTS, State.STANDALONE):
        return found
    return Decision(Code.SUCCESS, found.score, found.sentence)


def _stop(facts: Facts) -> Decision:
    if facts.process is Process.ABSENT:
        return Decision(Code.SUCCESS, Score.NONE, "it does not run")
    return Decision(None, Score.NONE, "")


def _promote(facts: Facts) -> Decision:
    found = _monitor(Asked.MONITOR, facts)
    if facts.process is not Process.ALIVE or facts.state in (*_FAULTS, State.STANDALONE):
        return found
    if facts.state in (State.ACTIVE, State.ALONE):
        return Decision(Code.SUCCESS, Score.SERVING, "it serves")
    if facts.state in (State.BEHIND, State.TROUBLED):
        return Decision(Code.GENERIC, Score.NEVER, found.sentence)
    return _WORK


def _demote(facts: Facts) -> Decision:
    """A broker that does not run serves no client. One that does not answer is ended, which is work."""
    if facts.process is Process.ABSENT:
        return Decision(Code.SUCCESS, Score.NONE, "it does not run")
    if facts.process is Process.DOOMED:
        return Decision(Code.SUCCESS, Score.NEVER, _LIFELESS[Process.DOOMED])
    found = _monitor(Asked.MONITOR, facts)
    if facts.process is Process.FROZEN or facts.state in (*_FAULTS, State.PROMOTING):
        return _WORK
    if facts.state.serves:
        return found if facts.state is State.STANDALONE else _WORK
    return Decision(Code.SUCCESS, found.score, found.sentence)
