"""What must hold, each checker named by the invariants it checks. No code is shared with `ha.core`.

`Checkers` is the one door: the run tells it of each life, byte and tick; it raises `Violation`.
"""

from tests.simulation.checkers.facade import Checkers
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.pending import PENDING

__all__ = ["PENDING", "SERVING", "Checkers"]
