"""Jobs that reconcile the ledgers of brokers and clients. Reads ledger files only; imports no broker code.

The modules, in the order in which data flows: `read` (files -> records), `condense` (records -> events),
`publishing`, `contents`, `order`, `replication`, `rates` (events -> findings), `books` (are the ledgers
whole?), `verdict` (findings -> one answer) and `reconcile`, which joins them. PySpark is needed by most of
them, so nothing is imported here.
"""
