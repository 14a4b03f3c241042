"""`python -m bench.hostile [ROW ...]`: what an honest client notices while somebody attacks the broker.

Each row prints the victim's waits without and with the attack, the longest stop of the event loop, the
memory, and the goals. Exit code 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import sys

from bench.hostile.measure import HEAD, measure
from bench.hostile.rows import ROWS
from bench.hostile.session import ahead, standing


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(names)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=20.0, help="of attack, and half as many without")
    parser.add_argument("--ahead", action="store_true", help="of other sessions on the cores; for root only")
    given = parser.parse_args(argv)
    if unknown := set(given.rows) - set(names):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if given.ahead:
        rest = [word for word in argv if word != "--ahead"]
        return ahead([sys.executable, "-m", "bench.hostile", *rest])
    print(standing(), "", *HEAD, sep="\n", flush=True)
    met = [measure(row, given.seconds) for row in ROWS if row.name in (given.rows or names)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
