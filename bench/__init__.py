"""Measurements of the broker, alone and as a pair, from outside: `python -m bench.run`."""
