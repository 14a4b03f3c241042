"""Histories of whole clusters, generated without a fault and then spoiled on purpose; and an independent
oracle.

`generate` -> `plant` -> files; `spark.reconcile` and `oracle` (DuckDB) read them; `trial` compares the three.
"""
