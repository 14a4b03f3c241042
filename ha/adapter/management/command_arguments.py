"""The arguments of commands that change roles: the same through AMQP, HTTP and the control socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTROLS = ("status", "start", "stop", "active", "passive")
"""What an operator may ask of a node that promotes itself."""
_FORCE = '"force_lossy", true or false'


def fault_of(command: str, args: Mapping[str, Any], *, vouches: bool = False) -> str | None:
    """What is wrong with the arguments, in a sentence; None for other commands. `vouches`: the asking side
    may be a resource manager, which has made sure that the named node is off."""
    match command:
        case "promote":
            known = {"force_lossy", "fenced"} if vouches else {"force_lossy"}
            right = isinstance(args.get("force_lossy", False), bool)
            right = right and isinstance(args.get("fenced"), str | None)
            if right and not set(args) - known:
                return None
            if vouches:
                return f'the arguments are {_FORCE}, and "fenced", the name of a node that is off'
            return f"the only argument is {_FORCE}"
        case "demote":
            return "it takes no arguments" if args else None
        case "controller":
            right = args.get("do") in CONTROLS and not set(args) - {"do"}
            return None if right else f'the only argument is "do", one of {", ".join(CONTROLS)}'
        case "switchover":
            right = isinstance(args.get("to"), str | None) and not set(args) - {"to"}
            return None if right else 'the only argument is "to", the name of a backup'
    return None
