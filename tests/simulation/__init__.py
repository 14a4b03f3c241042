"""The seeded simulation: real nodes and real wire bytes under a virtual network, disk and clock.

`python -m tests.simulation --seeds N --first K` runs it. One seed draws everything: topology, workload,
delays and faults; the same seed gives the same run, event by event. Checkers are named by the number of the
invariant in docs/explanation/guarantees.md and share no code with `ha.core`.
"""
