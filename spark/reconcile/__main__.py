"""`python -m spark.reconcile LEDGER_DIR...`: the verdict as JSON. `job` has the rest."""

from __future__ import annotations

from spark.reconcile.job import program

if __name__ == "__main__":
    program()
