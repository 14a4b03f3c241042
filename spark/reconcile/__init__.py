"""The reconciling job: ledgers in, verdict out. `job` runs it; data flows input -> checks -> verdict."""
