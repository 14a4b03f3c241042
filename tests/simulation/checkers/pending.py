"""What the simulation does not check, or does not do, and why. Counted in each report, so that it is not
forgotten. A number leaves this list when a checker has it in its name."""

from __future__ import annotations

PENDING: dict[str, str] = {
    "30": "a torn ledger: tested where ledgers are written and read",
}
"""An invariant by its number, or a part of the workload, and the reason."""
