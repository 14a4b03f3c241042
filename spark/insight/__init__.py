"""Beyond no-loss: latencies, rates and history from the same ledgers, for the reports.

DataFrame -> DataFrame on records as they were read (`spark.read`), since events joined by `condense` have
lost their times. Work is done for ranges and weighted by their sizes, never for each id. `survey` and
`confirms` alone start Spark actions.
"""
