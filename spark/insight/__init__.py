"""Reports on more than losses: latencies, rates and history, from the same ledgers.

The transforms work on records as they were read (`reconcile/input/read.py`), because events that `condense`
joined have lost their times. They work on ranges, weighted by size, never on single ids. Only `survey` and
`latency/confirms.py` start Spark actions.
"""
