"""The tests. A package, so that `tests/broker` never shadows `broker`."""
