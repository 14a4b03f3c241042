"""Why a dial did not get in, in sentences. DialFaults logs why there is no link with a broker of the pair.
Owner: Node.

It logs a reason once, not at each attempt: again when the reason has changed, or when there was a link in
between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.amqp091.client import NOT_IN_TIME
from ha.adapter import codes
from ha.adapter.inbox import DialFailed, DialOpen
from ha.core.election.peers import explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.adapter.inbox import Item
    from understudy.shared.codes import Coded


def dial_failure(dial: DialFailed, limit: str) -> str:
    """Only the kernel there can say that nothing listens. `limit`: the setting of the time that a login may
    take."""
    if dial.unspoken and not (dial.refusal or dial.distrust):
        slow = f"; over a slow line, set {limit}" if NOT_IN_TIME in dial.unspoken else ""
        return f"somebody listens there, and is no broker that answers: {dial.unspoken}{slow}"
    silent = "nobody answers there" if dial.nobody else "no answer comes from there"
    return dial.refusal or dial.distrust or dial.unresolved or silent


class DialFaults:
    """The last reason logged for each address."""

    def __init__(self, log: Callable[[Coded], None]) -> None:
        self._log = log
        self._said: dict[str, Coded | None] = {}

    def heard(self, item: Item) -> None:
        """Silence is not logged: that broker may just be down."""
        match item:
            case DialOpen(address=address):
                self._said.pop(address, None)
            case DialFailed(address=address, refusal=refusal, distrust=distrust, unresolved=unresolved):
                said = None
                if refusal or distrust:
                    said = codes.LINK_REFUSED.say(address=address, why=distrust or explained(refusal))
                elif unresolved:
                    said = codes.NAME_UNRESOLVED.say(address=address, why=unresolved)
                if said is not None and self._said.get(address) != said:
                    self._log(said)
                self._said[address] = said
