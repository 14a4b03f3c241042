"""What must hold, each checker named by the invariants it checks. No code is shared with `ha.core`.

`Checkers` is the one door: the run tells it of each life, byte and tick; it raises `Violation`.
"""

from tests.simulation.checkers.clients_see import Deliveries17and20and21and23
from tests.simulation.checkers.confirms import Confirms2and3
from tests.simulation.checkers.copies import check_copies_13
from tests.simulation.checkers.facade import Checkers
from tests.simulation.checkers.facts import SERVICE, SERVING, OutputReader
from tests.simulation.checkers.no_loss import check_no_loss_1
from tests.simulation.checkers.one_primary import Serving8and9

__all__ = [
    "SERVICE", "SERVING", "Checkers", "Confirms2and3", "Deliveries17and20and21and23", "OutputReader",
    "Serving8and9", "check_copies_13", "check_no_loss_1",
]  # fmt: skip
