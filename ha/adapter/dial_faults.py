"""DialFaults: logs why there is no link with a broker of the pair. Owner: Node.

It logs a reason once, not at each attempt: again when the reason has changed, or when there was a link in
between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.adapter.inbox import DialFailed, DialOpen

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.adapter.inbox import Item


class DialFaults:
    """The last reason logged for each address."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._said: dict[str, str] = {}

    def heard(self, item: Item) -> None:
        """Silence is not logged: that broker may just be down."""
        match item:
            case DialOpen(address=address):
                self._said.pop(address, None)
            case DialFailed(address=address, refusal=refusal, distrust=distrust, unresolved=unresolved):
                fault = f" refused: {refusal or distrust}" if refusal or distrust else ""
                fault = fault or (f": {unresolved}" if unresolved else "")
                if fault and self._said.get(address) != fault:
                    self._log(f"link to {address}{fault}")
                self._said[address] = fault
