"""Jobs that reconcile the ledgers of brokers and clients. Reads ledger files only; imports no broker code.

`reconcile` proves from ledgers that nothing was lost: `input` (files -> records -> events), `ledgers` (are
they whole?), `checks` (events -> findings), `verdict` (findings -> one answer), `job` (joins them). `watch`
does so while ledgers grow. `insight` reports latencies, rates and failovers; `latency` is what both `insight`
and `reconcile` know of a message's way. PySpark is needed by most of them, so nothing is imported here.
"""
