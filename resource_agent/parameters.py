"""The agent's parameters: their names, their meanings, and their values in this invocation.

The meta-data is made from the same list. Values come from `OCF_RESKEY_<name>`; a wrong value raises Refused,
with the code for the manager.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from resource_agent.codes import Code

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_PATHS = ("binary", "config", "log_file", "state_dir")
_TIMES = ("status_timeout", "disk_timeout", "recovery_timeout")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class Refused(Exception):
    """The action ends here. `str()` is the exit reason."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Parameter(NamedTuple):
    name: str
    default: str
    short: str
    long: str
    reloadable: bool = False
    """A change of it needs no restart: only the agent itself looks at it."""
    unique_group: str = ""


PARAMETERS = (
    Parameter(
        "binary", "/usr/bin/understudy", "The program",
        "The absolute path of the program `understudy`, in its virtual environment or elsewhere.",
    ),
    Parameter(
        "config", "/etc/understudy/understudy.toml", "The configuration file",
        "The absolute path of the broker's configuration, on every node. It has to be readable for the user.",
    ),
    Parameter(
        "user", "understudy", "The user that the broker runs as",
        "It has to be in the group haclient if the broker keeps its record in the cluster's configuration "
        "(ha.authority = pacemaker).",
    ),
    Parameter("group", "", "The group that the broker runs as", "Empty: the primary group of the user."),
    Parameter(
        "node_name", "", "What the broker is called",
        "Its broker.name. Empty: the name of the cluster node, so that the cluster and the brokers mean the "
        "same by a name. A broker that is called otherwise is demoted without handing over to another.",
    ),
    Parameter(
        "log_file", "", "Where the broker's standard error goes",
        "An absolute path. Empty: /var/log/understudy/RESOURCE.log. It is opened at each start, and appended "
        "to: rotate it with copytruncate.",
    ),
    Parameter(
        "state_dir", "/run/understudy", "Where the agent keeps what it knows of the process",
        "An absolute path below which each resource has a directory, with process id and control socket. It "
        "has to be empty after a reboot, as /run is.", unique_group="state",
    ),
    Parameter(
        "status_timeout", "3s", "How long the broker may take to say how it is",
        "A broker that does not answer a monitor for so long has failed.", reloadable=True,
    ),
    Parameter(
        "disk_timeout", "10s", "How long the disk may take for one write",
        "A broker with a write in its data directory under way for longer has failed.", reloadable=True,
    ),
    Parameter(
        "recovery_timeout", "10min", "How long the broker may read its store",
        "So long after the start of its process the broker need not answer: it counts as running and "
        "unpromoted, and has no promotion score. Afterwards it has failed.", reloadable=True,
    ),
)  # fmt: skip


class Settings(NamedTuple):
    """The parameters of this invocation; times in seconds."""

    binary: str
    config: str
    user: str
    group: str
    node_name: str
    log_file: str
    state_dir: str
    status_timeout: float
    disk_timeout: float
    recovery_timeout: float


def read_settings(environ: Mapping[str, str], binary: str, instance: str, ends: bool = False) -> Settings:
    """`binary`: its default; `instance`: of the resource, without the number of a clone's instance; `ends`: a
    wrong value counts as the default, since a failed stop has the node fenced. Raises Refused."""
    raw = {p.name: environ.get(f"OCF_RESKEY_{p.name}", "").strip() or p.default for p in PARAMETERS}
    raw["binary"] = environ.get("OCF_RESKEY_binary", "").strip() or binary
    raw["log_file"] = raw["log_file"] or f"/var/log/understudy/{instance}.log"
    raw["node_name"] = raw["node_name"] or node_name(environ)
    for name, sentence in _wrong(raw):
        if not ends:
            raise Refused(Code.CONFIGURED, sentence)
        raw[name] = next((p.default for p in PARAMETERS if p.name == name and p.default), "/dev/null")
    times = {name: _seconds(raw[name]) for name in _TIMES}
    return Settings(
        raw["binary"], raw["config"], raw["user"], raw["group"], raw["node_name"], raw["log_file"],
        raw["state_dir"], **times,
    )  # fmt: skip


def node_name(environ: Mapping[str, str]) -> str:
    """The cluster's name of this node."""
    return environ.get("OCF_RESKEY_CRM_meta_on_node") or os.uname().nodename


def _wrong(raw: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names of parameters with wrong values, and a sentence on each."""
    paths = [name for name in _PATHS if not os.path.isabs(raw[name]) or "\0" in raw[name]]
    times = [name for name in _TIMES if _seconds(raw[name]) <= 0]
    return [(name, f"{name}={raw[name]}: not an absolute path") for name in paths] + [
        (name, f'{name}={raw[name]}: not a time such as "10s", and more than nothing') for name in times
    ]


def _seconds(text: str) -> float:
    """The time in seconds; 0 if it is no time."""
    found = _DURATION.fullmatch(text)
    unit = _UNITS.get(found.group(2)) if found is not None else None
    return float(found.group(1)) * unit if found is not None and unit is not None else 0.0
