"""The actions. Each looks at the state, asks the decision table, and does the remaining work. Modules that
only a start needs are imported there.

Owner: `main`, one per invocation. Pacemaker runs at most one action of a resource at a time on a node.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from resource_agent.broker_status import is_manual, member_names, read_status
from resource_agent.cluster import Cluster
from resource_agent.codes import Code, Score
from resource_agent.control_client import NoAnswer, NobodyThere, ask
from resource_agent.decision import Asked, Decision, Facts, Process, State, decide
from resource_agent.parameters import Refused, Settings
from resource_agent.process import end
from resource_agent.state_dir import StateDir

_POLL = 0.1
"""Seconds between two looks at a broker that is to change."""
_TARGET = 30.0
"""Seconds for which a broker may serve before the manager has had it promoted, in a planned change."""
_LEAVING = 10.0
"""Seconds for which a broker that has stepped down for it may wait to be demoted."""
_UNREST = 3.0
"""Seconds after a change of roles in which Pacemaker's transition is probably not over."""
_SCORE_LASTS = 10.0
"""Seconds for which a score that was set is taken to be there still."""
_DEMOTE_PATIENCE = 5.0
"""Seconds for a broker that answers to stop serving; one that cannot is ended."""
_GRACE = 2.0
"""Seconds for which a broker that is to be promoted, and may not, may change its mind: to be restarted for a
promotion that has failed would cost it its place in the record."""
_BRISK = 0.5
"""Seconds for a broker that has just failed to answer, when it is to be demoted."""
_DEAF = 1.0
"""Seconds between SIGTERM and SIGKILL for a broker that can hardly heed the first."""
_LAST = 5.0
"""Seconds for a killed process to be gone; one that is not waits for a disk, and its node is to be fenced."""
_LAST_OF_DEMOTION = 1.0
"""The same where it is enough that nothing of it runs any more."""
_ASKABLE = (State.READY, State.DOUBTFUL, State.FORMER_OWNER, State.BEST_COPY)
_KILL_RESERVE = 0.25
"""Share of a stop's time that is kept for SIGKILL."""


class Agent:
    """One invocation. Methods that return a Code have set score and marks; `main` handles Refused."""

    def __init__(self, settings: Settings, cluster: Cluster, installed: bool) -> None:
        self._settings = settings
        self._cluster = cluster
        self._installed = installed
        self._state = StateDir(settings.state_dir, cluster.instance)
        self._process = self._state.process()
        self._status: Any = None

    # -- looking

    def _look(self) -> tuple[Facts, str]:
        """Find the state, and a sentence on it: the broker's own sentence where it has one."""
        process = Process.ABSENT if self._process is None else self._process.look()
        state, said = self._ask_state() if process is Process.ALIVE else (State.SILENT, "")
        marks = self._state
        facts = Facts(
            self._installed,
            process,
            state,
            marks.has("promoted"),
            marks.counts("target"),
            marks.counts("leaving"),
        )
        return facts, said

    def _ask_state(self) -> tuple[State, str]:
        settings = self._settings
        self._status = None
        patience = settings.status_timeout
        if self._cluster.action == "demote" and self._state.has("failed"):
            patience = min(patience, _BRISK)
        try:
            code, answer = ask(self._state.control, "GET", "/api/status", min(patience, self._cluster.left))
        except NobodyThere as error:
            age = self._process.age() if self._process is not None else 0.0
            if not self._state.has("answered") and age < settings.recovery_timeout:
                return State.STARTING, ""
            return State.SILENT, str(error)
        except NoAnswer as error:
            return State.SILENT, str(error)
        if code != 200:
            return State.SILENT, f"its status is refused with code {code}"
        self._status = answer
        return read_status(answer, settings.disk_timeout)

    def _judge(self, asked: Asked) -> tuple[Decision, Facts]:
        """Look, decide, and keep the marks for the next invocation. If the decision is final, the score is
        set."""
        facts, said = self._look()
        found = decide(asked, facts)
        if said and not found.sentence.endswith(said):
            found = found._replace(sentence=f"{found.sentence}: {said}" if found.sentence else said)
        self._remember(facts)
        if found.code is not None:
            self._set_score(found.score)
        return found, facts

    def _set_score(self, score: Score) -> None:
        """Set the promotion score. Each change makes the manager compute its transition again. So a score
        does not rise while a transition is probably under way, soon after a change of roles, unless it is
        that of a primary and another node's could be higher. A score that is set is not set again for a
        while."""
        if score is Score.KEEP:
            return
        value, age = self._state.last_score()
        unrest = self._state.counts("changed")
        if score is Score.NONE and value == Score.NEVER.value and unrest and self._cluster.action == "stop":
            return  # as good as none, until a probe or a start
        probe = self._cluster.action == "monitor" and self._cluster.is_probe
        if self._cluster.action not in ("start", "stop") and not probe:
            if value == score.value and age < _SCORE_LASTS:
                return
            before = next((each for each in Score if each.value == value), None)
            enough = score is not Score.SERVING or before is Score.IN_RECORD
            if unrest and enough and before is not None and score.raises(before):
                return
        if self._cluster.score(score) and os.path.isdir(self._state.path):
            self._keep(self._state.scored, score.value)

    def _remember(self, facts: Facts) -> None:
        if facts.process is not Process.ALIVE:
            return
        failed = facts.state in (State.SILENT, State.STALLED)
        self._keep(self._state.set, "failed", failed)
        if not failed and facts.state is not State.STARTING:
            self._keep(self._state.set, "answered", True)
            self._keep(self._state.set, "promoted", facts.state.serves and not facts.target)

    def _keep(self, write: Callable[..., None], *what: object) -> None:
        """Write a mark. If that fails because /run is full, it must not fail a healthy broker, nor hold up
        its demotion."""
        try:
            write(*what)
        except OSError as error:
            self._cluster.log("warning", f"cannot write in {self._state.path}: {error.strerror}")

    def _finish(self, found: Decision) -> Code:
        """Give the reason, if there is one."""
        assert found.code is not None
        if not found.code.fine:
            self._cluster.exit_reason(found.sentence)
        return found.code

    # -- monitor, start, stop

    def monitor(self) -> Code:
        asked = Asked.PROBE if self._cluster.is_probe else Asked.MONITOR
        found, _facts = self._judge(asked)
        if found.code in (Code.GENERIC, Code.FAILED_PROMOTED):
            self._cluster.log("err", found.sentence)
        return self._finish(found)

    def validate(self) -> Code:
        from resource_agent.launch import account, check_files

        check_files(self._settings, account(self._settings))
        return Code.SUCCESS

    def start(self) -> Code:
        from resource_agent.launch import account, check_files, launch

        found, _facts = self._judge(Asked.START)
        if found.code not in (None, Code.INSTALLED):  # what is not installed is named below
            return self._finish(found)
        who = account(self._settings)
        check_files(self._settings, who)
        ready = launch(self._settings, who, self._state, self._cluster.deadline)
        self._process = self._state.process()
        self._cluster.log("info", "started" if ready else "started; it reads its store")
        found, facts = self._judge(Asked.START)
        if is_manual(self._status):
            self._cluster.log("warning", "its ha.authority is manual, which is for operators and no cluster")
        if facts.state is State.STANDALONE and facts.process is Process.ALIVE:
            self._end(self._cluster.left / 2, _LAST)
        return self._finish(found._replace(code=found.code if found.code is not None else Code.GENERIC))

    def stop(self) -> Code:
        process = self._process
        if process is not None and not process.gone:
            heeds = self._state.has("answered") and not self._state.has(
                "failed"
            )  # while it starts, it cannot
            patience = self._cluster.left * (1 - _KILL_RESERVE) if heeds else _DEAF
            fault = self._end(patience, _LAST)
            if fault is not None:
                raise Refused(Code.GENERIC, fault)
            self._cluster.log("info", "stopped")
        self._set_score(Score.NONE)
        self._state.stopped()
        return self._finish(decide(Asked.STOP, self._look()[0]))

    def _end(self, patience: float, last: float) -> str | None:
        """SIGTERM, wait so many seconds, SIGKILL, wait so many; None once the process is gone."""
        if self._process is None:
            return None
        return end(self._process, deadline=self._cluster.deadline, patience=patience, last=last)

    # -- promote

    def promote(self) -> Code:
        """Ask the broker, and ask again while it is promotable: the cause of a refusal may pass."""
        refusal, began = "", time.monotonic()
        self._keep(self._state.set_for, "changed", _UNREST)
        while True:
            found, facts = self._judge(Asked.PROMOTE)
            if found.code is Code.SUCCESS:
                self._state.set("target", False)
                self._state.set("leaving", False)
                self._keep(self._state.set, "promoted", True)
                return found.code
            doubtful = facts.state in (State.BEHIND, State.TROUBLED) and time.monotonic() - began < _GRACE
            if found.code is not None and not (facts.process is Process.ALIVE and doubtful):
                return self._finish(found._replace(sentence=refusal or found.sentence))
            if self._cluster.left <= _POLL:
                raise Refused(Code.GENERIC, f"not promoted in time: {refusal or found.sentence}")
            if facts.state in _ASKABLE:
                refusal = self._request("promote", {}, self._cluster.left)
            if refusal or facts.state not in _ASKABLE:
                time.sleep(_POLL)

    def _request(self, what: str, body: dict[str, Any], timeout: float) -> str:
        """Have the broker do it; "" once it has, else its refusal, or that it does not answer."""
        try:
            _code, answer = ask(self._state.control, "POST", f"/api/{what}", timeout, body)
        except NoAnswer as error:
            return str(error)
        if isinstance(answer, dict) and answer.get("ok") is True:
            self._cluster.log("info", f"{what}: {answer.get('reason')}")
            return ""
        reason = str(answer.get("reason")) if isinstance(answer, dict) else "it answers what makes no sense"
        self._cluster.log("warning", f"{what} refused: {reason}")
        return reason

    # -- demote

    def demote(self) -> Code:
        """Hand over to the node that the manager is about to promote, or else just stop serving. A broker
        that can do neither is ended."""
        found, facts = self._judge(Asked.DEMOTE)
        if found.code is None:
            self._keep(self._state.set_for, "changed", _UNREST)
            if not self._steps_down(facts):
                fault = self._end(0, _LAST_OF_DEMOTION)
                self._cluster.log("warning", fault or "it could not be demoted, and was killed")
            found, _facts = self._judge(Asked.DEMOTE)
        self._state.set("promoted", False)
        self._state.set("leaving", False)
        if found.code is None:
            raise Refused(Code.GENERIC, f"it may still serve: {found.sentence}")
        return self._finish(found)

    def _steps_down(self, facts: Facts) -> bool:
        """Has it stopped serving, and said so? A broker that has just failed is not asked for long."""
        if facts.process is not Process.ALIVE or facts.state is State.SILENT:
            return False
        if facts.state is State.STALLED:
            return not self._request("demote", {}, min(_BRISK, self._cluster.left))
        targets = self._cluster.names("promote_uname")
        if len(targets) == 1 and targets[0] in member_names(self._status):
            reserve = 2 * _DEMOTE_PATIENCE
            patience = max(_DEMOTE_PATIENCE, self._cluster.left - reserve)
            if not self._request("switchover", {"to": targets[0]}, patience):
                return True
        return not self._request("demote", {}, min(_DEMOTE_PATIENCE, self._cluster.left))

    # -- notify

    def notify(self) -> Code:
        """Managers ignore its code. Before a demotion this node steps down already, while the clients'
        address is still here: once the address is gone, no packet reaches the clients."""
        when, what = self._cluster.meta("notify_type"), self._cluster.meta("notify_operation")
        me = self._settings.node_name
        if (when, what) == ("pre", "demote"):
            if self._cluster.meta("on_node", me) in self._cluster.names("promote_uname"):
                self._keep(self._state.set_for, "target", _TARGET)
                self._keep(self._state.set_for, "changed", _UNREST)
            elif self._cluster.meta("on_node", me) in self._cluster.names("demote_uname"):
                self._step_down_early()
        elif (when, what) == ("pre", "promote"):
            self._judge(Asked.MONITOR)
        return Code.SUCCESS

    def _step_down_early(self) -> None:
        if self._state.has("failed"):
            return
        facts, _said = self._look()
        if facts.process is Process.ALIVE and facts.state.serves and facts.state is not State.STANDALONE:
            self._keep(self._state.set_for, "changed", _UNREST)
            self._keep(self._state.set_for, "leaving", _LEAVING)
            # Meanwhile, for a change after this action would have the manager begin once more, and one before
            # it would let the address go first.
            falls = threading.Thread(target=self._set_score, args=(Score.NEVER,), daemon=True)
            falls.start()
            self._steps_down(facts)
            falls.join(1.0)
