"""The agent's side of Pacemaker: its environment, promotion scores, exit reasons, the log.

`subprocess` is imported where it is used: most monitors run no command, and the import takes a sixth of their
time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from resource_agent.codes import Score

_PATIENCE = 5.0
"""Seconds that a command of Pacemaker may take."""
_DEFAULT_TIMEOUT = 20.0
_MARGIN = 0.1
"""Share of an action's time that is left for its last words."""
_PRIORITIES = {"err": 3, "warning": 4, "info": 6}


class Cluster:
    """One invocation of the agent, as the manager made it."""

    def __init__(self, environ: Mapping[str, str], action: str) -> None:
        self._environ = environ
        self._began = time.monotonic()
        self.action = action
        self.instance = environ.get("OCF_RESOURCE_INSTANCE", "understudy").partition(":")[0]

    # -- what it was told

    @property
    def is_probe(self) -> bool:
        return self.meta("interval", "0").strip() in ("", "0")

    def meta(self, name: str, default: str = "") -> str:
        return self._environ.get(f"OCF_RESKEY_CRM_meta_{name}", default)

    def names(self, what: str) -> list[str]:
        """Of nodes, from a notification's variables: `promote_uname`, `demote_uname`."""
        return self.meta(f"notify_{what}").split()

    @property
    def deadline(self) -> float:
        """When the action has to be over, on the monotonic clock; a little before the manager gives it up."""
        try:
            limit = int(self.meta("timeout")) / 1000
        except ValueError:
            limit = _DEFAULT_TIMEOUT
        return self._began + limit * (1 - _MARGIN)

    @property
    def left(self) -> float:
        """Seconds until then, never less than a moment."""
        return max(0.1, self.deadline - time.monotonic())

    # -- what it says

    def score(self, score: Score) -> bool:
        """Set this node's promotion score, as a transient attribute: it is gone after a reboot. Has it
        been set?"""
        import subprocess

        what = "--delete" if score is Score.NONE else f"--update={score.value}"
        command = ["crm_attribute", f"--promotion={self.instance}", "--lifetime=reboot", what, "--quiet"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=_PATIENCE, env=self._commands_environ(), check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            self.log("warning", f"cannot set the promotion score: {error}")
            return False
        if done.returncode != 0 and score is not Score.NONE:
            said = " ".join(done.stderr.decode(errors="replace").split())
            self.log("warning", f"cannot set the promotion score: crm_attribute: {said or done.returncode}")
        return done.returncode == 0

    def _commands_environ(self) -> dict[str, str]:
        path = self._environ.get("PATH", "")
        return {**self._environ, "PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"}

    def exit_reason(self, text: str) -> None:
        """Shown by Pacemaker beside the failed action."""
        prefix = self._environ.get("OCF_EXIT_REASON_PREFIX", "ocf-exit-reason:")
        print(prefix + " ".join(text.split()), file=sys.stderr, flush=True)

    def log(self, level: str, text: str) -> None:
        """As the shell agents do: the cluster's log daemon, syslog or a file, by the manager's variables."""
        tag = f"understudy({self.instance})[{os.getpid()}]"
        word = {"err": "ERROR", "warning": "WARNING"}.get(level, "INFO")
        line = f"{word}: {' '.join(text.split())}"
        if self._environ.get("HA_LOGD") == "yes" and _ran(["ha_logger", "-t", tag, line]):
            return
        facility = self._environ.get("HA_LOGFACILITY", "")
        if facility not in ("", "none"):
            _syslog(facility, tag, level, line)
        file = self._environ.get("HA_LOGFILE", "")
        if file:
            _append(file, f"{time.strftime('%Y/%m/%d_%H:%M:%S')} {tag}:    {line}\n")
        elif facility in ("", "none"):
            print(f"{tag}: {line}", file=sys.stderr, flush=True)


def _ran(command: list[str]) -> bool:
    import subprocess

    try:
        return subprocess.run(command, timeout=_PATIENCE, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _syslog(facility: str, tag: str, level: str, line: str) -> None:
    import syslog

    number = getattr(syslog, f"LOG_{facility.upper()}", syslog.LOG_DAEMON)
    syslog.openlog(tag, 0, number)
    syslog.syslog(_PRIORITIES.get(level, syslog.LOG_NOTICE), line)


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return
