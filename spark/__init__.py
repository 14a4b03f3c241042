"""Jobs that reconcile the ledgers of brokers and clients. They read ledger files only, and import no broker
code.

`reconcile` proves from ledgers that nothing was lost: `input` (files -> records -> events), `ledgers` (are
they whole?), `checks` (events -> findings), `verdict` (findings -> one answer), `job` (joins them). `watch`
does so while ledgers grow. `insight` reports latencies, rates and failovers. `latency` measures messages for
both `insight` and `reconcile`. Most of them need PySpark, so this module imports nothing.
"""
