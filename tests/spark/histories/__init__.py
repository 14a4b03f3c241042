"""Histories of whole clusters, made legal and then spoilt on purpose; and a judge that is not the job.

`generate` -> `plant` -> files; `spark.reconcile` and `oracle` (DuckDB) read them; `trial` compares the three.
"""
