"""Known: whether all upstreams of an exchange route by what it wanted when this was made.

Owner: a bind that waits (`x-federation-wait`), for as long. Makes calls on AgentEnd. What is wanted later
does not make it wait longer. A line that breaks does: all is compared, and told, anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from ha.core.federation.agent_end import AgentEnd, Told


class Known:
    """Call it for the answer. `ends`: those that take."""

    def __init__(self, ends: Iterable[AgentEnd]) -> None:
        self._left: dict[AgentEnd, Told] = {end: end.watch() for end in ends}
        """Who does not know yet, and what it has to know."""

    def __call__(self) -> bool:
        for end, told in list(self._left.items()):
            if told.life != end.life:
                told = self._left[end] = end.watch()
            if end.knows(told):
                del self._left[end]
        return not self._left
