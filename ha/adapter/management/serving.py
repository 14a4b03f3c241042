"""Whether a node serves, so that it may answer questions on the current state, or change it. Called by the
code that answers operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ha.adapter import codes
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from broker.model.vhost.vhosts import VirtualHosts


def not_serving(vhosts: VirtualHosts, status: Mapping[str, Any]) -> Coded | None:
    """Why it does not, with the node that serves if that is known; None: it serves. `status`: what the node
    says of itself."""
    if vhosts.serving and not status.get("withheld"):
        return None
    primary = status.get("primary")
    known = f"; its primary is {primary}" if primary and not vhosts.serving else ""
    return codes.NOT_SERVING.say(node=status["name"], reason=status["reason"], primary=known)
