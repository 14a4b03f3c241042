"""Beyond no-loss: latencies, rates and history from the same ledgers, for the reports.

DataFrame -> DataFrame on records as they were read (`reconcile/input/read.py`), since events that `condense`
joined have lost their times. Work is done for ranges and weighted by their sizes, never for each id. `survey`
and `latency/confirms.py` alone start Spark actions.
"""
