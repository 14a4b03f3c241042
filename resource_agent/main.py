"""The entry of the agent's script: one action, one exit code.

Modules are imported as they are needed: most notifications need none, and each import delays a failover.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is worth a fifth of such a notification
    from collections.abc import Callable, Mapping, Sequence

    from resource_agent.cluster import Cluster
    from resource_agent.codes import Code

_NOTIFIED = (("pre", "demote"), ("pre", "promote"))
"""The notifications by which something is done."""


def main(arguments: Sequence[str], environ: Mapping[str, str], binary: str) -> int:
    """`binary`: the default of the parameter of that name."""
    action = arguments[1] if len(arguments) == 2 else ""
    if action == "notify":
        kind = environ.get("OCF_RESKEY_CRM_meta_notify_type")
        if (kind, environ.get("OCF_RESKEY_CRM_meta_notify_operation")) not in _NOTIFIED:
            return 0
    if action in ("meta-data", "usage", "help", "methods"):
        return _describe(action, binary)
    return _act(action, environ, binary)


def _describe(action: str, binary: str) -> int:
    from resource_agent.metadata import METHODS, metadata, usage

    if action == "meta-data":
        print(metadata(binary), end="")
    elif action == "methods":
        print("\n".join(METHODS))
    else:
        print(usage(), end="")
    return 0


def _act(action: str, environ: Mapping[str, str], binary: str) -> int:
    from resource_agent.cluster import Cluster
    from resource_agent.codes import Code
    from resource_agent.parameters import Refused

    cluster = Cluster(environ, action)
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


def _run(cluster: Cluster, environ: Mapping[str, str], binary: str) -> Code:
    from resource_agent.agent import Agent
    from resource_agent.codes import Code
    from resource_agent.metadata import METHODS, usage
    from resource_agent.parameters import Refused, read_settings

    if cluster.action not in METHODS:
        print(usage(), file=sys.stderr)
        if not cluster.action:
            raise Refused(Code.ARGS, "exactly one action has to be given")
        raise Refused(Code.UNIMPLEMENTED, f"there is no action {cluster.action}")
    settings = read_settings(environ, binary, cluster.instance, cluster.action in ("stop", "demote"))
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
    return actions[cluster.action]()
