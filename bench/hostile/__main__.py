"""`python -m bench.hostile [ROW ...]`: what an honest client notices while somebody attacks the broker.

Each row prints the victim's waits without and with the attack, the larger broker's memory, and the goal. Exit
code 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import sys

from bench.hostile.measure import HEAD, measure
from bench.hostile.rows import ROWS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(names)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=20.0, help="of attack, and half as many without")
    given = parser.parse_args()
    if unknown := set(given.rows) - set(names):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    print(*HEAD, sep="\n", flush=True)
    met = [measure(row, given.seconds) for row in ROWS if row.name in (given.rows or names)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
