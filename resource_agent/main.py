"""Entry of the agent's script: one action, one exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from resource_agent.agent import Agent
from resource_agent.cluster import Cluster
from resource_agent.codes import Code
from resource_agent.metadata import METHODS, metadata, usage
from resource_agent.parameters import Refused, read_settings


def main(arguments: Sequence[str], environ: Mapping[str, str], binary: str) -> int:
    """`binary`: the default of the parameter of that name."""
    action = arguments[1] if len(arguments) == 2 else ""
    if action == "meta-data":
        return _print(metadata(binary))
    if action in ("usage", "help"):
        return _print(usage())
    if action == "methods":
        return _print("\n".join(METHODS) + "\n")
    cluster = Cluster(environ, action)
    if len(arguments) != 2:
        print(usage(), file=sys.stderr)
        cluster.exit_reason("exactly one action has to be given")
        return Code.ARGS
    try:
        return _run(cluster, environ, binary)
    except Refused as error:
        cluster.exit_reason(str(error))
        cluster.log("err", f"{action}: {error}")
        return error.code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        cluster.exit_reason(f"{where}{error.strerror or error}")
        return Code.PERM if isinstance(error, PermissionError) else Code.GENERIC


def _print(text: str) -> Code:
    print(text, end="")
    return Code.SUCCESS


def _run(cluster: Cluster, environ: Mapping[str, str], binary: str) -> Code:
    settings = read_settings(environ, binary, cluster.instance)
    agent = Agent(settings, cluster, os.path.exists(settings.binary))
    actions: dict[str, Callable[[], Code]] = {
        "start": agent.start,
        "stop": agent.stop,
        "monitor": agent.monitor,
        "promote": agent.promote,
        "demote": agent.demote,
        "notify": agent.notify,
        "validate-all": agent.validate,
        "reload-agent": agent.validate,
    }
    found = actions.get(cluster.action)
    if found is None:
        print(usage(), file=sys.stderr)
        cluster.exit_reason(f"there is no action {cluster.action}")
        return Code.UNIMPLEMENTED
    return found()
