"""How soon, and how exactly, `understudy watch` tells a loss: `python -m bench.watch`."""
